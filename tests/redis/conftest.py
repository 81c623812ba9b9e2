"""A server of each test's own, which it may kill, fill and demote."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import RedisStorage
from tests.redis_server import Make, RedisServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def make() -> Make:
    """Which server it is. Modules that look at what servers say, and not at what we do then, look at both."""
    return "redis"


@pytest.fixture
def redis_server(tmp_path: Path, make: Make) -> Iterator[RedisServer]:
    """A server that writes everything down before it answers. It may be killed; the machine may not, hence no fsync."""
    with RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "no", make=make) as server:
        yield server


@pytest.fixture
def storage(redis_server: RedisServer) -> Iterator[RedisStorage]:
    """A storage on it."""
    storage = RedisStorage(redis_server.url)
    yield storage
    storage.close()
