"""Clocks that stop until a test moves them.

The storage's clock decides, so a test moves that one: it gives a memory storage a `ManualClock`, replaces PostgreSQL's
single time function for all users of that database, and passes the time to the scripts of a Redis storage.
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import psycopg
from psycopg import sql

from pgjq.storage.postgres.conninfo import libpq_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.redis.storage import RedisStorage

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A clock that a test can move."""

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        ...


class ManualClock:
    """The `clock` of a MemoryStorage or FileStorage; moving it wakes their sleeping workers."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake workers that sleep until a time."""
        with self._lock:
            self._now += timedelta(seconds=seconds)
            subscribers = tuple(self._subscribers)
        for moved in subscribers:
            moved()

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call `moved` after every move; return a function that ends the subscription."""
        with self._lock:
            self._subscribers.append(moved)
        return lambda: self._unsubscribe(moved)

    def _unsubscribe(self, moved: Callable[[], None]) -> None:
        with self._lock:
            self._subscribers.remove(moved)


class PostgresClock:
    """The clock of one schema in one database, stopped for all processes until `restore`.

    Moving it wakes the sleeping workers of all processes.
    """

    def __init__(self, conninfo: str, schema: str = "pgjq", start: datetime = START) -> None:
        self._conninfo = libpq_conninfo(conninfo)
        self._schema = schema
        self._now = start
        self._replace(sql.Literal(start))

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake workers that sleep until a time."""
        self._now += timedelta(seconds=seconds)
        self._replace(sql.Literal(self._now))

    def restore(self) -> None:
        """Use the server's clock again."""
        self._replace(sql.SQL("statement_timestamp()"))

    def _replace(self, value: sql.Composable) -> None:
        replace = "create or replace function {}() returns timestamptz language sql stable parallel safe return {}"
        wake = sql.SQL("select {}(q.name) from {} as q")
        with psycopg.connect(self._conninfo, autocommit=True) as connection:
            connection.execute(sql.SQL(replace).format(self._name("now"), value))
            connection.execute(wake.format(self._name("wake"), self._name("queue")))
            connection.execute(sql.SQL("select {}()").format(self._name("wake_schedules")))

    def _name(self, name: str) -> sql.Identifier:
        return sql.Identifier(self._schema, name)


class RedisClock:
    """The clock of one `RedisStorage` object, stopped for that object until `restore`.

    Moving it wakes the workers that sleep on that object.
    """

    def __init__(self, storage: RedisStorage, start: datetime = START) -> None:
        self._storage = storage
        self._now = round(start.timestamp() * 1_000_000)
        storage.move_clock(self._now)

    def advance(self, seconds: float) -> None:
        """Move the clock forward, and wake workers that sleep until a time."""
        self._now += round(seconds * 1_000_000)
        self._storage.move_clock(self._now)

    def restore(self) -> None:
        """Use the server's clock again."""
        self._storage.move_clock(None)
