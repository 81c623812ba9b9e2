"""The storages that are fuzzed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import pgjq

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.storage.base import Storage

STORAGES = ("memory", "file", "postgres", "redis")


@contextmanager
def opened(name: str, address: str) -> Generator[Storage]:
    """Open a storage of that kind, and close it."""
    makers = {"file": pgjq.FileStorage, "postgres": pgjq.PostgresStorage, "redis": pgjq.RedisStorage}
    storage: Storage = makers[name](address) if name in makers else pgjq.MemoryStorage()
    yield storage
    storage.close()
