"""The connection pools of async operations: one for each event loop.

A pool belongs to the loop that opened it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from psycopg_pool import AsyncConnectionPool, PoolTimeout

from pgjq.deadline import UNLIMITED, bounded, current_deadline, run_on_thread, wait_in_time
from pgjq.errors import StorageUnavailableError
from pgjq.storage.per_loop import PerLoop
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.pool_log import mark_async
from pgjq.storage.postgres.pool_waiting import (
    LATE,
    close_seconds,
    has_unread_bytes,
    refuse_if_late,
    retry_interval,
    wait_deadline,
)
from pgjq.storage.postgres.server import answered_in_time
from pgjq.storage.postgres.session import AsyncSession, Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    import psycopg

    from pgjq.storage.postgres.pool import Pools


R = TypeVar("R")


class AsyncPool:
    """Connections for event loops, one pool for each loop."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._by_loop = PerLoop(self._new_pool, pools.watchdog.end)
        self._check = PerLoop(lambda: _SharedCall(pools.check))
        self._explain = PerLoop(lambda: _SharedCall(pools.explain_timeout))

    @asynccontextmanager
    async def session(self, *, for_handler: bool = False) -> AsyncGenerator[Session]:
        """Borrow a connection."""
        refuse_if_late()
        pool = await self._opened()
        cancelled = _Cancelled()
        with translated():
            connection = await self._borrow(pool)
            while has_unread_bytes(connection.fileno()):
                await connection.close()
                await pool.putconn(connection)
                await pool.drain()
                connection = await self._borrow(pool)
        lent = self._pools.watchdog.watch(connection, for_handler=for_handler)
        try:
            cancelled.check()
            yield AsyncSession(connection, self._pools.server.queries, self._pools.server.prepared)
        except StorageUnavailableError:
            cancelled.check()
            raise
        finally:
            self._pools.watchdog.unwatch(lent)
            await pool.putconn(connection)

    async def check(self) -> None:
        """Check that the database can be used."""
        if not self._pools.server.checked or self._pools.closed:
            await self._check.get().result()

    async def close(self) -> None:
        """Close the connections of the running event loop."""
        pool = self._by_loop.pop()
        if pool is not None:
            await pool.close(close_seconds())
            self._pools.watchdog.end()

    def drop(self) -> None:
        """Schedule the replacement of the connections of every loop."""
        for loop, pool in self._by_loop.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda p=pool, on=loop: on.create_task(p.drain()))

    def close_soon(self) -> None:
        """Schedule the closing of the connections of every running loop."""
        for loop, pool in self._by_loop.pop_all().items():
            self._pools.watchdog.end()
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda p=pool, on=loop: on.create_task(p.close(close_seconds())))

    async def _borrow(self, pool: AsyncConnectionPool[Any]) -> psycopg.AsyncConnection[Any]:
        until = wait_deadline()
        while True:
            try:
                return await pool.getconn(timeout=retry_interval())
            except PoolTimeout as error:
                if not current_deadline().left:
                    raise StorageUnavailableError(LATE) from error
                if time.monotonic() > until:
                    raise await self._explain.get().result() from error

    async def _configure(self, connection: psycopg.AsyncConnection[Any]) -> None:
        await mark_async(connection)
        if not self._pools.server.is_pooled:
            with answered_in_time(connection):
                await connection.execute(self._pools.server.queries.psycopg("configure_session"), {}, prepare=False)

    async def _opened(self) -> AsyncConnectionPool[Any]:
        if (pool := self._by_loop.peek()) is not None:
            if not pool.closed:
                return pool
            await self.close()  # The loop has cancelled its tasks, and goes on.
        await self.check()
        pool = self._by_loop.get()
        with translated():
            await pool.open()
        return pool

    def _new_pool(self) -> AsyncConnectionPool[Any]:
        """Make a loop's pool; `PerLoop` calls this under its lock (see `Pools.refuse_if_closed`)."""
        self._pools.refuse_if_closed()
        pool = _LoopPool(**self._pools.options(), configure=self._configure, open=False)
        self._pools.watchdog.begin()
        return pool


class _SharedCall(Generic[R]):
    """A blocking call that the tasks of a loop share.

    A task that needs the result waits for the call in progress.
    """

    def __init__(self, call: Callable[[], R]) -> None:
        self._call = call
        self._running: asyncio.Task[R] | None = None

    async def result(self) -> R:
        """Return the result; StorageUnavailableError at the deadline of the caller."""
        if self._running is None or self._running.done():
            with bounded(UNLIMITED):  # It is not this caller's alone.
                self._running = asyncio.create_task(run_on_thread(self._call), name="pgjq shared call")
            self._running.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            return await wait_in_time(asyncio.shield(self._running))
        except TimeoutError as error:
            raise StorageUnavailableError(LATE) from error


class _LoopPool(AsyncConnectionPool[Any]):
    """A pool that ends when its loop cancels all tasks, as `asyncio.run` does at the end.

    psycopg_pool's worker tasks ignore a cancellation while they connect: with a server that does not answer,
    `asyncio.run` would wait for them for ever.
    """

    _guard: asyncio.Task[None] | None = None

    async def open(self, wait: bool = False, timeout: float = 30.0) -> None:  # noqa: FBT001, FBT002
        """Open the pool."""
        await super().open(wait, timeout)
        if self._guard is None:
            self._guard = asyncio.create_task(self._close_when_cancelled(), name="pgjq pool guard")

    async def close(self, timeout: float = 5.0) -> None:
        """Close the pool."""
        guard, self._guard = self._guard, None
        if guard is not None and guard is not asyncio.current_task():
            guard.cancel()
        await super().close(timeout)

    async def _close_when_cancelled(self) -> None:
        try:
            await asyncio.get_running_loop().create_future()  # Only a cancellation ends this.
        except asyncio.CancelledError:
            if self._guard is not None:  # Else `close` has cancelled this.
                await super().close(close_seconds())
            raise


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
