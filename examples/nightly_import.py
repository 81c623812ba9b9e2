"""A nightly import that can be killed at any point, and still leaves every line in the database once.

A file of prices is read in chunks. Each chunk is written in a transaction of its own, and a checkpoint says how far the
import has come. When a worker dies, the next one goes on where the checkpoint says. It may write one chunk again, the
one between a commit and its checkpoint, so writing is idempotent: a line that is there already is replaced by itself.
That the import is over is noted in the same commit that completes the job, so it is noted once.

    pgjq worker nightly_import:imports &
    python nightly_import.py prices.csv            # from cron, every night; twice does no harm
    pgjq status imports import-2026-11-16
"""

from __future__ import annotations

import csv
import os
import sys
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg

import pgjq

if TYPE_CHECKING:
    from collections.abc import Iterator

CHUNK = 1000

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
pgjq.migrate(storage.conninfo)
imports = pgjq.Queue(
    "imports",
    storage=storage,
    # An import may take hours. Its lease is short all the same, because it is renewed: that a worker died is noticed
    # after 10 seconds.
    lease_policy=pgjq.LeasePolicy(lease=10, heartbeat=3, expire=6 * 3600),
    max_attempts=10,
)

TABLES = (
    "create table if not exists price (article text primary key, cents int not null)",
    "create table if not exists import_log (file text, lines int, ended timestamptz default now())",
)
# The same line twice is the same as once: this is what makes a chunk safe to repeat.
WRITE = "insert into price values (%s, %s) on conflict (article) do update set cents = excluded.cents"


@imports.execute
def import_prices(job: pgjq.Job) -> None:
    """Import a file, from where the last run came to."""
    done: int = job.checkpoint or 0
    print(f"attempt {job.attempts} begins after line {done}", flush=True)
    with psycopg.connect(storage.conninfo, autocommit=True) as database:
        for chunk in read_chunks(Path(job.payload["file"]), done):
            job.signal.raise_if_aborted()  # Cancelled, or the worker stops: end here, the checkpoint is kept.
            with database.transaction(), database.cursor() as cursor:
                cursor.executemany(WRITE, chunk)
            done += len(chunk)
            job.save_checkpoint(done)  # Raises LeaseLostError if somebody else has this job by now.
    # This line cannot be repeated without harm. It is one commit with the job's end, and refused if the lease is gone.
    with job.transaction() as database:
        database.execute("insert into import_log (file, lines) values (%s, %s)", [job.payload["file"], done])
        job.result = {"lines": done}


def read_chunks(path: Path, done: int) -> Iterator[list[tuple[str, int]]]:
    """Read the lines after the first `done` ones, some at a time."""
    with path.open(newline="") as file:
        lines = islice(csv.reader(file), done, None)
        while chunk := [(article, int(cents)) for article, cents in islice(lines, CHUNK)]:
            yield chunk


def main(file: str) -> None:
    """Enqueue tonight's import, once: whoever calls this again today is told what became of it."""
    with psycopg.connect(storage.conninfo) as database:
        for table in TABLES:
            database.execute(table)
    today = datetime.now(UTC).date()
    result = imports.enqueue(f"import-{today}", {"file": str(Path(file).resolve())})
    print(result.id, result.status, result.existing_state or "")


if __name__ == "__main__":
    main(*sys.argv[1:])
    storage.close()
