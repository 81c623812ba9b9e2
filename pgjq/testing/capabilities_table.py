"""The table of capabilities in the documentation, made from the storages' declarations.

`python -m pgjq.testing.capabilities_table docs/storages.md` writes it between its marks; a test checks
that it is up to date.
"""

from __future__ import annotations

import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from pgjq.storage.base import Capabilities
from pgjq.storage.file.storage import FileStorage
from pgjq.storage.memory import MemoryStorage
from pgjq.storage.postgres.storage import PostgresStorage
from pgjq.storage.redis.storage import RedisStorage

STORAGES: tuple[Any, ...] = (PostgresStorage, RedisStorage, FileStorage, MemoryStorage)
BEGIN, END = "<!-- made from what storages declare -->\n", "<!-- end -->\n"


def table(*storages: Any) -> str:
    """Return the table: a row per capability, a column per storage."""
    rows = [["capability", "means", *(f"`{storage.__name__}`" for storage in storages)]]
    rows.append(["---"] * len(rows[0]))
    for capability in fields(Capabilities):
        declared = [getattr(storage.capabilities, capability.name) for storage in storages]
        rows.append([f"`{capability.name}`", capability.metadata["means"], *map(_cell, declared)])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def replaced(page: str) -> str:
    """Return a page with the up-to-date table."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}{table(*STORAGES)}{END}{after}"


def _cell(declared: bool | str) -> str:
    return declared if isinstance(declared, str) else "yes" if declared else "no"


if __name__ == "__main__":
    document = Path(sys.argv[1])
    document.write_text(replaced(document.read_text()))
