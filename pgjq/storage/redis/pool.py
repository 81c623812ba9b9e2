"""Pools of connections, one for threads and one for each event loop.

They are redis-py's connections without its client around them, which costs two thirds of a call. Nothing is sent twice:
whether a command whose answer was lost was done is the caller's question. A connection that died while it was idle is
connected anew before it is used, so a restart of the server is noticed by those alone whose call was under way. One
whose call was broken off is closed, because an answer may still be on its way.
"""

from __future__ import annotations

import asyncio
import os
import threading
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError, ResponseError

from pgjq.errors import StorageUnavailableError
from pgjq.storage.redis.failures import has_moved, translated
from pgjq.storage.redis.wire import Gate, Scripted, packed

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from pgjq.storage.redis.address import Address
    from pgjq.storage.redis.wire import Word

CONNECTIONS: Final = 32
PATIENCE: Final = 30.0
BUSY: Final = f"all {CONNECTIONS} connections were busy for {PATIENCE:g} s"


class BlockingPool(Scripted):
    """Connections for threads. A forked child begins with none."""

    def __init__(self, gate: Gate, address: Address, patience: float | None = None) -> None:
        self._gate = gate
        self._address = address
        self._patience = patience
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._idle: list[Any] = []
        self._room = threading.Semaphore(CONNECTIONS)

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        if not self._gate.enter():
            self._gate.check(_version(self._call("INFO", "server")))
        return self._call(*words)

    def _call(self, *words: Word) -> Any:
        with translated(), self._borrowed() as connection:
            connection.send_packed_command([packed(words)])
            return connection.read_response()

    @contextmanager
    def _borrowed(self) -> Generator[Any]:
        if self._process != os.getpid():
            self._begin()  # The parent's connections must not even be closed here.
        room = self._room
        if not room.acquire(timeout=PATIENCE):
            raise StorageUnavailableError(BUSY)
        try:
            connection = self._pick()
            try:
                yield connection
            except BaseException as error:
                self._settle(connection, error)
                raise
            self._keep(connection)
        finally:
            room.release()

    def _pick(self) -> Any:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._address.connection(self._patience)
        try:
            stale = connection.can_read(0)
        except (RedisError, OSError):
            stale = True
        if stale:
            connection.disconnect()
        return connection

    def _settle(self, connection: Any, error: BaseException) -> None:
        """Keep a connection whose server has answered, even with an error; a server that was demoted is left."""
        if not isinstance(error, ResponseError):
            connection.disconnect()
        elif has_moved(error):
            connection.disconnect()
            self.close_now()
        else:
            self._keep(connection)

    def _keep(self, connection: Any) -> None:
        self._idle.append(connection)
        if self._gate.closed:
            self.close_now()

    async def close(self) -> None:
        """Close what is idle; what is busy is closed, or kept, by its user."""
        self.close_now()

    def close_now(self) -> None:
        """Close, plainly."""
        if self._process == os.getpid():
            while self._idle:
                self._idle.pop().disconnect()


class _LoopPool:
    """The connections of one event loop."""

    def __init__(self) -> None:
        self.idle: list[Any] = []
        self.room = asyncio.Semaphore(CONNECTIONS)

    async def enter(self) -> None:
        """Wait for room; where there is some, which is nearly always, there is nothing to time."""
        if not self.room.locked():
            await self.room.acquire()
            return
        try:
            async with asyncio.timeout(PATIENCE):
                await self.room.acquire()
        except TimeoutError:
            raise StorageUnavailableError(BUSY) from None

    async def close(self) -> None:
        while self.idle:
            await self.idle.pop().disconnect(nowait=True)


class AsyncPool(Scripted):
    """Connections for event loops: each has its own."""

    def __init__(self, gate: Gate, address: Address) -> None:
        self._gate = gate
        self._address = address
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopPool] = {}

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        if not self._gate.enter():
            self._gate.check(_version(await self._call("INFO", "server")))
        return await self._call(*words)

    async def _call(self, *words: Word) -> Any:
        with translated():
            async with self._borrowed() as connection, asyncio.timeout(self._address.patience):
                await connection.send_packed_command([packed(words)])
                return await connection.read_response()

    @asynccontextmanager
    async def _borrowed(self) -> AsyncGenerator[Any]:
        pool = self._pool()
        await pool.enter()
        try:
            connection = await self._pick(pool)
            try:
                yield connection
            except BaseException as error:
                await self._settle(pool, connection, error)
                raise
            await self._keep(pool, connection)
        finally:
            pool.room.release()

    async def _pick(self, pool: _LoopPool) -> Any:
        if not pool.idle:
            return self._address.async_connection()
        connection = pool.idle.pop()
        try:
            stale = not connection.is_connected or await connection.can_read()
        except (RedisError, OSError):
            stale = True
        if stale:
            await connection.disconnect(nowait=True)
        return connection

    async def _settle(self, pool: _LoopPool, connection: Any, error: BaseException) -> None:
        """As the blocking pool does."""
        if not isinstance(error, ResponseError):
            await connection.disconnect(nowait=True)
        elif has_moved(error):
            await connection.disconnect(nowait=True)
            await pool.close()
        else:
            await self._keep(pool, connection)

    async def _keep(self, pool: _LoopPool, connection: Any) -> None:
        pool.idle.append(connection)
        if self._gate.closed:
            await pool.close()

    def _pool(self) -> _LoopPool:
        loop = asyncio.get_running_loop()
        pool = self._by_loop.get(loop)
        if pool is None:
            with self._lock:
                self._by_loop = {known: p for known, p in self._by_loop.items() if not known.is_closed()}
                pool = self._by_loop[loop] = _LoopPool()
        return pool

    async def close(self) -> None:
        """Close this loop's connections."""
        with self._lock:
            pool = self._by_loop.pop(asyncio.get_running_loop(), None)
        if pool is not None:
            await pool.close()

    def close_soon(self) -> None:
        """Have every loop that is still running close its own connections."""
        with self._lock:
            pools, self._by_loop = self._by_loop, {}
        for loop, pool in pools.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda p=pool, on=loop: on.create_task(p.close()))


def _version(info: bytes) -> str:
    """Find the version in what INFO says; Valkey gives that of the Redis it can stand for."""
    lines = (line.partition(b":") for line in info.splitlines())
    return next(value.decode() for name, _, value in lines if name == b"redis_version")
