"""Connection pools of the storage, one for each mode, opened on first use.

An async pool belongs to the event loop that opened it, so there is one for each loop that uses the storage.
"""

from __future__ import annotations

import asyncio
import random
import select
import threading
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool, PoolTimeout

from pgjq.deadline import current_deadline
from pgjq.errors import StorageUnavailableError, storage_closed
from pgjq.fork import ForkCheck
from pgjq.storage.per_loop import PerLoop
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.pool_log import mark, mark_async, pool_name
from pgjq.storage.postgres.session import AsyncSession, Session, SyncSession
from pgjq.storage.postgres.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from pgjq.storage.postgres.server import Server

# How long a caller waits for a connection; a restarting server is often back within that time.
PATIENCE = 10.0
# psycopg_pool retries a failed connection with growing pauses, for minutes; a pool that gives up early tries again for
# the next caller. So the pool gives up soon and the caller asks again: a server that is back is found within two
# seconds. The pause is random, so that a fleet of workers does not connect all at once.
ASK_AGAIN = 1.0
LATE = "no connection came in time"
# `close` does not wait longer for a pool that connects to a silent server; the pool's threads end with that attempt.
CLOSE_SECONDS = 1.0


class Pool(Protocol):
    """Source of connections for the operations of one mode."""

    def session(self, *, for_handler: bool = False) -> AbstractAsyncContextManager[Session]:
        """Borrow a connection; `for_handler` puts no limit on the time that a statement takes."""
        ...

    async def check(self) -> None:
        """Check once that the database can be reached and that its schema fits."""
        ...

    def drop(self) -> None:
        """Replace every connection: the server was demoted or is shutting down."""
        ...

    async def close(self) -> None:
        """Close this mode's connections."""
        ...


class Pools:
    """The pools of both modes for one database."""

    def __init__(self, server: Server, min_size: int, max_size: int, watchdog: Watchdog | None = None) -> None:
        self.server = server
        self.watchdog = watchdog or Watchdog(server.conninfo, lambda: server.is_pooled)
        self.min_size = min_size
        self.max_size = max_size
        self.closed = False
        self.sync_pool = SyncPool(self)
        self.async_pool = AsyncPool(self)

    def check(self) -> None:
        """Check that the database can be used, unless a check has passed before."""
        self.refuse_if_closed()
        self.server.check()

    def explain_timeout(self) -> StorageUnavailableError:
        """Return why no connection came in time: the server is unreachable, or all are in use."""
        try:
            psycopg.connect(self.server.conninfo, **self.server.connection).close()
        except psycopg.Error as error:
            return StorageUnavailableError(f"no connection for {PATIENCE:g} s: {error}")
        return StorageUnavailableError(
            f"all {self.max_size} connections of this storage were in use for {PATIENCE:g} s; "
            "raise max_size, or look for a transaction that stays open"
        )

    def refuse_if_closed(self) -> None:
        """Raise StorageError once the storage has been closed.

        A caller that opens a pool checks this under the pool's lock. `close` sets the flag before it takes that lock,
        so it sees every pool that was opened, however long the server took to answer before.
        """
        if self.closed:
            raise storage_closed()

    def close(self) -> None:
        """Close both pools; may be called from any thread."""
        self.closed = True
        self.sync_pool.close_now()
        self.async_pool.close_soon()


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
        _refuse_if_late()
        pool = self._opened()
        with translated():
            connection = self._borrow(pool)
            while has_news(connection.fileno()):
                connection.close()
                pool.putconn(connection)
                pool.drain()
                connection = self._borrow(pool)
        lent = self._pools.watchdog.lend(connection, for_handler=for_handler)
        try:
            yield SyncSession(connection, self._pools.server.queries, self._pools.server.prepared)
        finally:
            self._pools.watchdog.give_back(lent)
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
            pool.close(_close_seconds())
            self._pools.watchdog.end()

    def drop(self) -> None:
        """Replace every idle connection now, and each borrowed one when it is returned."""
        pool = self._pool
        if pool is not None:
            pool.drain()

    def _borrow(self, pool: ConnectionPool[Any]) -> psycopg.Connection[Any]:
        until = min(time.monotonic() + PATIENCE, current_deadline().until)
        while True:
            try:
                return pool.getconn(timeout=_ask_again())
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
                self._pool = ConnectionPool(
                    self._pools.server.conninfo,
                    kwargs=self._pools.server.connection,
                    min_size=self._pools.min_size,
                    max_size=self._pools.max_size,
                    reconnect_timeout=ASK_AGAIN,
                    name=pool_name(),
                    configure=self._configure,
                    open=True,
                )
                self._pools.watchdog.begin()
            return self._pool

    def _configure(self, connection: psycopg.Connection[Any]) -> None:
        mark(connection)
        if not self._pools.server.is_pooled:
            connection.execute(self._pools.server.queries.psycopg("configure_session"), {}, prepare=False)

    def _leave_to_parent(self) -> None:
        """Start with an empty pool in a forked child; closing the parent's would break it."""
        self._fork = ForkCheck()
        self._lock = threading.Lock()
        self._inherited.append(self._pool)
        self._pool = None


class DedicatedPool(SyncPool):
    """The connection of one background thread; after `close` no thread can open another."""

    async def close(self) -> None:
        """Close the connection for good."""
        self._pools.closed = True
        self.close_now()


class AsyncPool:
    """Connections for event loops, one pool for each loop."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._loops = PerLoop(self._make, forget=pools.watchdog.end)

    @asynccontextmanager
    async def session(self, *, for_handler: bool = False) -> AsyncGenerator[Session]:
        """Borrow a connection."""
        _refuse_if_late()
        pool = await self._opened()
        cancelled = _Cancelled()
        with translated():
            connection = await self._borrow(pool)
            while has_news(connection.fileno()):
                await connection.close()
                await pool.putconn(connection)
                await pool.drain()
                connection = await self._borrow(pool)
        lent = self._pools.watchdog.lend(connection, for_handler=for_handler)
        try:
            cancelled.check()
            yield AsyncSession(connection, self._pools.server.queries, self._pools.server.prepared)
        except StorageUnavailableError:
            cancelled.check()
            raise
        finally:
            self._pools.watchdog.give_back(lent)
            await pool.putconn(connection)

    async def check(self) -> None:
        """Check that the database can be used."""
        if not self._pools.server.checked or self._pools.closed:
            await asyncio.to_thread(self._pools.check)

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        pool = self._loops.pop()
        if pool is not None:
            await pool.close(_close_seconds())
            self._pools.watchdog.end()

    def drop(self) -> None:
        """Schedule the replacement of the connections of every loop."""
        for loop, pool in self._loops.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda p=pool, on=loop: on.create_task(p.drain()))

    def close_soon(self) -> None:
        """Schedule the closing of the connections of every running loop."""
        for loop, pool in self._loops.pop_all().items():
            self._pools.watchdog.end()
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda p=pool, on=loop: on.create_task(p.close(_close_seconds())))

    async def _borrow(self, pool: AsyncConnectionPool[Any]) -> psycopg.AsyncConnection[Any]:
        until = min(time.monotonic() + PATIENCE, current_deadline().until)
        while True:
            try:
                return await pool.getconn(timeout=_ask_again())
            except PoolTimeout as error:
                if not current_deadline().left:
                    raise StorageUnavailableError(LATE) from error
                if time.monotonic() > until:
                    raise await asyncio.to_thread(self._pools.explain_timeout) from error

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await mark_async(connection)
        if not self._pools.server.is_pooled:
            await connection.execute(self._pools.server.queries.psycopg("configure_session"), {}, prepare=False)

    async def _opened(self) -> AsyncConnectionPool[Any]:
        if (pool := self._loops.peek()) is not None:
            return pool
        await self.check()
        pool = self._loops.get()
        with translated():
            await pool.open()
        return pool

    def _make(self) -> AsyncConnectionPool[Any]:
        self._pools.refuse_if_closed()
        pool = AsyncConnectionPool[Any](
            self._pools.server.conninfo,
            kwargs=self._pools.server.connection,
            min_size=self._pools.min_size,
            max_size=self._pools.max_size,
            reconnect_timeout=ASK_AGAIN,
            name=pool_name(),
            configure=self._configure,
            open=False,
        )
        self._pools.watchdog.begin()
        return pool


class _Cancelled:
    """Detects a cancellation of the running task that was lost; the task still counts it.

    Before Python 3.12 `asyncio.wait_for`, which the pool uses, drops a cancellation that arrives together with the
    connection. psycopg replaces a cancellation by the error of a connection that breaks while it cancels the statement.
    A worker that was asked to stop would keep sleeping.
    """

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._before = self._count()

    def check(self) -> None:
        """Raise CancelledError if a cancellation was lost."""
        if self._count() > self._before:
            raise asyncio.CancelledError

    def _count(self) -> int:
        return self._task.cancelling() if self._task is not None else 0


def _refuse_if_late() -> None:
    if not current_deadline().left:
        raise StorageUnavailableError(LATE)


def _close_seconds() -> float:
    return min(CLOSE_SECONDS, max(0.1, current_deadline().left))


def _ask_again() -> float:
    pause = ASK_AGAIN * random.uniform(0.5, 1.0)  # noqa: S311  (no secret)
    return min(pause, max(current_deadline().left, 0.01))


def has_news(socket: int) -> bool:
    """Return whether an idle connection has unread bytes: then the server has closed it.

    The check costs a microsecond and no round trip; with it, the next caller does not notice that a server was
    restarted. The other idle connections are replaced as well. A peer that vanished without closing the connection is
    found when a statement fails.
    """
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
