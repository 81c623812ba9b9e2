"""RedisStorage keeps the contract, on the oldest Redis that it supports and on a new Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import RedisStorage
from pgjq.testing import RedisClock, StorageConformance

if TYPE_CHECKING:
    from pgjq.blocking import Mode


class _Contract(StorageConformance):
    """Every case of the contract that applies."""

    capabilities = RedisStorage.capabilities

    @pytest.fixture
    def clock(self, storage: RedisStorage) -> RedisClock:
        """The clock that the storage's scripts go by, which the test moves."""
        return RedisClock(storage)


class TestRedis(_Contract):
    """On Redis."""

    @pytest.fixture
    def storage(self, redis_storage: RedisStorage) -> RedisStorage:
        """An empty storage."""
        return redis_storage


class TestValkey(_Contract):
    """On Valkey."""

    @pytest.fixture
    def storage(self, valkey_storage: RedisStorage) -> RedisStorage:
        """An empty storage."""
        return valkey_storage

    @pytest.fixture
    def mode(self) -> Mode:
        """Run one mode: the scripts are what another server may run differently, and both modes call the same ones."""
        return "async"
