"""PostgresStorage keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq.testing import PostgresClock, StorageConformance

if TYPE_CHECKING:
    from pgjq import PostgresStorage


class TestPostgres(StorageConformance):
    """Every case of the contract."""

    @pytest.fixture
    def clock(self, database: str) -> PostgresClock:
        """The database's clock, which the test moves."""
        return PostgresClock(database)

    @pytest.fixture
    def storage(self, postgres: PostgresStorage) -> PostgresStorage:
        """An empty storage."""
        return postgres
