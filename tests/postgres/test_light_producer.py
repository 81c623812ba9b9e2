"""A process that only enqueues loads what it needs to enqueue."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("alembic", "click", "django", "pgjq.cli", "rich", "sqlalchemy")
CODE = """
import sys
import pgjq

storage = pgjq.PostgresStorage(sys.argv[1])
mail = pgjq.Queue("mail", storage=storage)

@mail.task
def receipt(order: int) -> str: ...

assert mail.send(1)
assert receipt.enqueue(7).status().state == "queued"
storage.close()
print(*sorted(set(sys.argv[2:]) & set(sys.modules)))
"""


def test_a_producer_does_not_load_what_only_others_need(database: str) -> None:
    command = [sys.executable, "-c", CODE, database, *HEAVY]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
