"""RedisStorage keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq.testing import RedisClock, StorageConformance

if TYPE_CHECKING:
    from pgjq import RedisStorage


class TestRedis(StorageConformance):
    """Every case of the contract."""

    @pytest.fixture
    def clock(self, redis_storage: RedisStorage) -> RedisClock:
        """The clock that the storage's scripts go by, which the test moves."""
        return RedisClock(redis_storage)

    @pytest.fixture
    def storage(self, redis_storage: RedisStorage) -> RedisStorage:
        """An empty storage."""
        return redis_storage
