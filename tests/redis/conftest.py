"""A Redis of each test's own, which it may kill, fill and demote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import RedisStorage
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """A server that writes everything down before it answers. It may be killed; the machine may not, hence no fsync."""
    with RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "no") as server:
        yield server


@pytest.fixture
def storage(redis_server: RedisServer) -> Iterator[RedisStorage]:
    """A storage on it."""
    storage = RedisStorage(redis_server.url)
    yield storage
    storage.close()
