"""PostgresStorage keeps the contract."""

from __future__ import annotations

import pytest

from pgjq import PostgresStorage
from pgjq.testing import PostgresClock, StorageConformance


class TestPostgres(StorageConformance):
    """Every case of the contract that applies."""

    capabilities = PostgresStorage.capabilities

    @pytest.fixture
    def clock(self, database: str) -> PostgresClock:
        """The database's clock, which the test moves."""
        return PostgresClock(database)

    @pytest.fixture
    def storage(self, postgres: PostgresStorage) -> PostgresStorage:
        """An empty storage."""
        return postgres
