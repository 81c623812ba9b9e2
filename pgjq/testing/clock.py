"""Clocks that stand still until a test moves them.

The clock that decides is the storage's, so a test moves that one: it gives a memory storage a `ManualClock`, replaces
PostgreSQL's one function of time for everybody who uses that database, and tells the scripts of a Redis storage what to
take for the time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import psycopg
from psycopg import sql

from pgjq.storage.postgres.conninfo import libpq_conninfo

if TYPE_CHECKING:
    from pgjq.storage.redis.storage import RedisStorage

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A clock that a test can move."""

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        ...


class ManualClock:
    """A clock for `MemoryStorage(clock=…)`."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start

    def __call__(self) -> datetime:
        """Tell the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)


class PostgresClock:
    """The clock of one schema in one database: it stands still for everybody, until `restore` lets it run again."""

    def __init__(self, conninfo: str, schema: str = "pgjq", start: datetime = START) -> None:
        self._conninfo = libpq_conninfo(conninfo)
        self._function = sql.Identifier(schema, "now")
        self._now = start
        self._replace(sql.Literal(start))

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._now += timedelta(seconds=seconds)
        self._replace(sql.Literal(self._now))

    def restore(self) -> None:
        """Go by the server's clock again."""
        self._replace(sql.SQL("statement_timestamp()"))

    def _replace(self, value: sql.Composable) -> None:
        statement = sql.SQL(
            "create or replace function {}() returns timestamptz language sql stable parallel safe return {}"
        )
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(statement.format(self._function, value))


class RedisClock:
    """The clock of one `RedisStorage` object: it stands still for that one, until `restore` lets it run again."""

    def __init__(self, storage: RedisStorage, start: datetime = START) -> None:
        self._storage = storage
        storage.shared.frozen = round(start.timestamp() * 1_000_000)

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._storage.shared.frozen = (self._storage.shared.frozen or 0) + round(seconds * 1_000_000)

    def restore(self) -> None:
        """Go by the server's clock again."""
        self._storage.shared.frozen = None
