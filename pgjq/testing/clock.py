"""Clocks that stop until a test moves them.

The storage's clock decides, so a test moves that one: it gives a memory storage a `ManualClock`, replaces PostgreSQL's
single time function for all users of that database, and passes the time to the scripts of a Redis storage.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Protocol, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from pgjq.storage.postgres.conninfo import libpq_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage
    from pgjq.storage.redis.storage import RedisStorage

START = datetime(2026, 1, 1, tzinfo=UTC)


class Clock(Protocol):
    """A clock that a test can move."""

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        ...


class MovableClock(ABC):
    """A clock that stands still until a test moves it."""

    @abstractmethod
    def now(self) -> datetime:
        """Return the time."""

    @abstractmethod
    def move_to(self, time: datetime) -> None:
        """Set the clock, and wake workers that sleep until a time."""

    def advance(
        self,
        seconds: float | timedelta = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        weeks: float = 0.0,
    ) -> None:
        """Move the clock forward, and wake workers that sleep until a time: `advance(hours=3)`."""
        by = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        self.move_to(self.now() + by + timedelta(minutes=minutes, hours=hours, days=days, weeks=weeks))


class ManualClock(MovableClock):
    """The `clock` of a MemoryStorage or FileStorage; moving it wakes their sleeping workers."""

    def __init__(self, start: datetime = START) -> None:
        self._now = start
        self._lock = threading.Lock()
        self._subscribers: list[Callable[[], None]] = []

    def __call__(self) -> datetime:
        """Return the time."""
        return self._now

    def now(self) -> datetime:
        """Return the time."""
        return self._now

    def move_to(self, time: datetime) -> None:
        """Set the clock, and wake workers that sleep until a time."""
        with self._lock:
            self._now = time
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


class PostgresClock(MovableClock):
    """The clock of one schema in one database, stopped for all processes until `restore`.

    Moving it wakes the sleeping workers of all processes.
    """

    def __init__(self, conninfo: str, schema: str = "pgjq", start: datetime = START) -> None:
        self._conninfo = libpq_conninfo(conninfo)
        self._schema = schema
        self._now = start
        self._replace(sql.Literal(start))
        _postgres_clocks[_place(self._conninfo, schema)] = self

    def now(self) -> datetime:
        """Return the time."""
        return self._now

    def move_to(self, time: datetime) -> None:
        """Set the clock, and wake workers that sleep until a time."""
        self._now = time
        self._replace(sql.Literal(time))

    def restore(self) -> None:
        """Use the server's clock again."""
        _postgres_clocks.pop(_place(self._conninfo, self._schema), None)
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


class RedisClock(MovableClock):
    """The clock of one `RedisStorage` object, stopped for that object until `restore`.

    Moving it wakes the workers that sleep on that object.
    """

    def __init__(self, storage: RedisStorage, start: datetime = START) -> None:
        self._storage = storage
        self._now = start
        storage.move_clock(_micros(start))
        _redis_clocks[storage] = self

    def now(self) -> datetime:
        """Return the time."""
        return self._now

    def move_to(self, time: datetime) -> None:
        """Set the clock, and wake workers that sleep until a time."""
        self._now = time
        self._storage.move_clock(_micros(time))

    def restore(self) -> None:
        """Use the server's clock again."""
        _redis_clocks.pop(self._storage, None)
        self._storage.move_clock(None)


_postgres_clocks: WeakValueDictionary[tuple[str | None, ...], PostgresClock] = WeakValueDictionary()
_redis_clocks: WeakKeyDictionary[RedisStorage, RedisClock] = WeakKeyDictionary()


def clock_of(storage: Storage) -> MovableClock | None:
    """Return the clock that a test has given to a storage, or None if its time runs by itself."""
    own = getattr(getattr(storage, "clock", None), "now", None)
    if isinstance(own, MovableClock):
        return own
    if isinstance(conninfo := getattr(storage, "conninfo", None), str):
        return _postgres_clocks.get(_place(conninfo, getattr(storage, "schema", "pgjq")))
    return _redis_clocks.get(cast("RedisStorage", storage)) if hasattr(storage, "move_clock") else None


def _place(conninfo: str, schema: str) -> tuple[str | None, ...]:
    given = conninfo_to_dict(conninfo)
    return (*(str(given.get(name, "")) for name in ("host", "port", "dbname")), schema)


def _micros(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
