"""The connection pool of blocking operations and of dedicated connections."""

from __future__ import annotations

import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from psycopg_pool import ConnectionPool, PoolTimeout

from pgjq.deadline import current_deadline
from pgjq.errors import StorageUnavailableError
from pgjq.fork import ForkCheck
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.pool_log import mark
from pgjq.storage.postgres.pool_waiting import (
    LATE,
    close_seconds,
    has_unread_bytes,
    refuse_if_late,
    retry_interval,
    wait_deadline,
)
from pgjq.storage.postgres.server import answered_in_time
from pgjq.storage.postgres.session import Session, SyncSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import psycopg

    from pgjq.storage.postgres.pool import Pools


class SyncPool:
    """Connections for threads."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._lock = threading.Lock()
        self._fork = ForkCheck()
        self._inherited: list[object] = []
        self._pool: ConnectionPool[Any] | None = None

    @asynccontextmanager
    async def session(self, *, for_handler: bool = False) -> AsyncGenerator[Session]:
        """Borrow a connection."""
        refuse_if_late()
        pool = self._opened()
        with translated():
            connection = self._borrow(pool)
            while has_unread_bytes(connection.fileno()):
                connection.close()
                pool.putconn(connection)
                pool.drain()
                connection = self._borrow(pool)
        lent = self._pools.watchdog.watch(connection, for_handler=for_handler)
        try:
            yield SyncSession(connection, self._pools.server.queries, self._pools.server.prepared)
        finally:
            self._pools.watchdog.unwatch(lent)
            pool.putconn(connection)

    async def check(self) -> None:
        """Check that the database can be used."""
        self._pools.check()

    async def close(self) -> None:
        """Close this mode's connections."""
        self.close_now()

    def close_now(self) -> None:
        """Close the pool without waiting for borrowed connections."""
        with self._lock:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close(close_seconds())
            self._pools.watchdog.end()

    def drop(self) -> None:
        """Replace every idle connection now, and each borrowed one when it is returned."""
        pool = self._pool
        if pool is not None and not self._fork.happened:
            pool.drain()

    def _borrow(self, pool: ConnectionPool[Any]) -> psycopg.Connection[Any]:
        until = wait_deadline()
        while True:
            try:
                return pool.getconn(timeout=retry_interval())
            except PoolTimeout as error:
                if not current_deadline().left:
                    raise StorageUnavailableError(LATE) from error
                if time.monotonic() > until:
                    raise self._pools.explain_timeout() from error

    def _opened(self) -> ConnectionPool[Any]:
        if self._fork.happened:
            self._leave_to_parent()
        if self._pool is None:
            self._pools.check()  # Not under the lock: `close` must not wait for a server that does not answer.
        with self._lock:
            self._pools.refuse_if_closed()
            if self._pool is None:
                self._pool = ConnectionPool(**self._pools.options(), configure=self._configure, open=True)
                self._pools.watchdog.begin()
            return self._pool

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        mark(connection)
        if not self._pools.server.is_pooled:
            with answered_in_time(connection):
                connection.execute(self._pools.server.queries.psycopg("configure_session"), {}, prepare=False)

    def _leave_to_parent(self) -> None:
        """Start with an empty pool in a forked child; closing the parent's would break it."""
        self._fork = ForkCheck()
        self._lock = threading.Lock()
        self._inherited.append(self._pool)
        self._pool = None
