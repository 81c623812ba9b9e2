"""Addresses and spaces: a space is a schema, a key prefix or a directory, with jobs of its own at the same address."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pgjq import FileStorage, PostgresStorage, RedisStorage

if TYPE_CHECKING:
    from pgjq.storage.base import Storage

MAIN = "pgjq"
ELECTION = "election"  # Where the standalone reapers run for leader against each other.


def own_space(reaper: str) -> str:
    """Name the space in which only one reaper works."""
    return reaper.replace("-", "_")


def open_space(address: str, space: str = MAIN) -> Storage:
    """Make the storage of a space."""
    if address.startswith("redis:"):
        return RedisStorage(address, prefix=space)
    if address.startswith("file:"):
        return FileStorage(Path(urlsplit(address).path, space))
    return PostgresStorage(address, schema=space)
