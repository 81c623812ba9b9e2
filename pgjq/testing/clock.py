"""Clocks that stand still until a test moves them.

The clock that decides is the storage's, so a test moves that one: it gives a memory storage a `ManualClock`, and
replaces PostgreSQL's one function of time for everybody who uses that database.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Protocol

import psycopg
from psycopg import sql

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
        self._conninfo = conninfo
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
        body = sql.SQL("select {}").format(value)
        statement = sql.SQL(
            "create or replace function {}() returns timestamptz language sql stable parallel safe as {}"
        )
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(statement.format(self._function, sql.Literal(body.as_string(connection))))
