"""Workers on RedisStorage behave as the suite says, on the oldest Redis that it supports and on a new Valkey."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import RedisStorage
from pgjq.testing import WorkerConformance

if TYPE_CHECKING:
    from collections.abc import Callable


class _Contract(WorkerConformance):
    """Every case that applies."""

    capabilities = RedisStorage.capabilities

    @pytest.fixture
    def url(self) -> str:
        """Return the server's URL."""
        raise NotImplementedError

    @pytest.fixture
    def reopen(self, url: str, storage: RedisStorage) -> Callable[[], RedisStorage]:
        """Open the same keys."""
        return lambda: RedisStorage(url, prefix=storage.prefix)

    @pytest.fixture
    def source(self, url: str, storage: RedisStorage) -> str:
        """Open the same keys in another process."""
        return f"pgjq.RedisStorage({url!r}, prefix={storage.prefix!r})"


class TestRedis(_Contract):
    """On Redis."""

    @pytest.fixture
    def url(self, redis_url: str) -> str:
        """Return the server's URL."""
        return redis_url

    @pytest.fixture
    def storage(self, redis_storage: RedisStorage) -> RedisStorage:
        """Return an empty storage."""
        return redis_storage


class TestValkey(_Contract):
    """On Valkey, in one mode: its server differs from Redis, and nothing of ours does."""

    @pytest.fixture
    def mode(self) -> str:
        """Use the async classes alone."""
        return "async"

    @pytest.fixture
    def url(self, valkey_url: str) -> str:
        """Return the server's URL."""
        return valkey_url

    @pytest.fixture
    def storage(self, valkey_storage: RedisStorage) -> RedisStorage:
        """Return an empty storage."""
        return valkey_storage
