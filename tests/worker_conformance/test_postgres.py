"""Workers on PostgresStorage behave as the suite says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import PostgresStorage
from pgjq.testing import WorkerConformance

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Mode


class TestPostgres(WorkerConformance):
    """Every case that applies."""

    capabilities = PostgresStorage.capabilities
    falls_asleep_after = 0.4

    @pytest.fixture
    def storage(self, postgres: PostgresStorage) -> PostgresStorage:
        """Return an empty storage."""
        return postgres

    @pytest.fixture
    def reopen(self, database: str) -> Callable[[], PostgresStorage]:
        """Open the same database."""
        return lambda: PostgresStorage(database)

    @pytest.fixture
    def connect(self, database: str, mode: Mode) -> Callable[[], Any]:
        """Open a psycopg connection."""
        kind = psycopg.Connection if mode == "sync" else psycopg.AsyncConnection
        return lambda: kind.connect(database)

    @pytest.fixture
    def source(self, database: str) -> str:
        """Open the same database in another process."""
        return f"pgjq.PostgresStorage({database!r})"
