"""Connections to a server: a pool for threads, one shared connection for each event loop.

* They are redis-py's connections without its client, which costs two thirds of a call.
* No command is sent twice: after a lost reply the caller finds out whether the command was done.
* A connection that died while idle is reconnected before it is used, so a restart of the server fails only the calls
  in progress. A thread's connection whose call was interrupted is closed, because its reply may still arrive.
* No call waits past its deadline (`pgjq.deadline`). A thread waits for the first bytes of a reply in short steps.
  Connecting, and sending a command that may exceed the socket's buffer, may block in the driver: with a deadline
  another thread does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import RedisError, ResponseError

from pgjq.deadline import (
    LOOK_SECONDS,
    NO_ANSWER,
    UNLIMITED,
    acquire_in_time,
    call_in_time,
    current_deadline,
    wait_in_time,
)
from pgjq.errors import StorageUnavailableError
from pgjq.storage.redis.error_translation import DRIVERS_ERRORS, has_moved, translate, translated
from pgjq.storage.redis.pipelined_connection import open_pipelined_connection
from pgjq.storage.redis.transport import Gate, Packed, packed

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.deadline import Deadline
    from pgjq.storage.redis.address import Address
    from pgjq.storage.redis.pipelined_connection import PipelinedConnection

CONNECTIONS: Final = 32
PATIENCE: Final = 30.0
BUSY: Final = f"all {CONNECTIONS} connections are busy"
# An idle connection accepts so much without blocking, whatever the server does: the smallest initial socket buffer.
SMALL_BYTES: Final = 16_384


class SyncPool(Packed):
    """Connections for threads. A forked child starts with none."""

    def __init__(self, gate: Gate, address: Address, patience: float | None = None) -> None:
        self._gate = gate
        self._address = address
        self._patience = patience
        self._limit = min(limit for limit in (patience, address.patience, inf) if limit is not None)
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._idle: list[Any] = []
        self._room = threading.Semaphore(CONNECTIONS)

    async def send(self, command: bytes) -> Any:
        """Run a command."""
        if not self._gate.enter():
            self._gate.check(_version(self._call(packed(("INFO", "server")))))
        return self._call(command)

    def _call(self, command: bytes) -> Any:
        deadline = current_deadline()
        with translated(), self._borrowed() as connection:
            if len(command) > SMALL_BYTES:
                return call_in_time(lambda: _exchange(connection, command))
            return _exchange(connection, command, deadline, self._limit)

    @contextlib.contextmanager
    def _borrowed(self) -> Generator[Any]:
        if self._process != os.getpid():
            self._begin()  # A forked child must not even close the parent's connections.
        room = self._room
        if not acquire_in_time(room, PATIENCE):
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
            return self._connected(self._address.connection(self._patience))
        try:
            stale = connection.can_read(0)
        except (RedisError, OSError):
            stale = True
        if stale:
            connection.disconnect()
            return self._connected(connection)
        return connection

    @staticmethod
    def _connected(connection: Any) -> Any:
        call_in_time(connection.connect, discard=lambda _: connection.disconnect())
        return connection

    def _settle(self, connection: Any, error: BaseException) -> None:
        """Keep the connection if the server replied, even with an error; drop all after a demotion."""
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
        """Close the idle connections; a busy one is closed or kept by the call that uses it."""
        self.close_now()

    def close_now(self) -> None:
        """Do what `close` does, without a coroutine."""
        if self._process == os.getpid():
            while self._idle:
                self._idle.pop().disconnect()


def _exchange(connection: Any, command: bytes, deadline: Deadline = UNLIMITED, patience: float = inf) -> Any:
    """Send a command and return its reply; without a deadline the driver's timeout applies."""
    connection.send_packed_command([command])
    until = time.monotonic() + patience
    while deadline is not UNLIMITED and not connection.can_read(min(LOOK_SECONDS, deadline.left)):
        if time.monotonic() >= min(until, deadline.until):
            raise TimeoutError(NO_ANSWER)
    return connection.read_response()


class _LoopConnection:
    """The connection of one event loop."""

    def __init__(self) -> None:
        self.connecting = asyncio.Lock()
        self.connection: PipelinedConnection | None = None
        self.failure: tuple[float, Exception] | None = None  # Time and error of the last failed connect.

    def leave(self) -> None:
        if self.connection is not None:
            self.connection.leave()


class AsyncPool(Packed):
    """Connections for event loops, one for each."""

    def __init__(self, gate: Gate, address: Address) -> None:
        self._gate = gate
        self._address = address
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, _LoopConnection] = {}

    async def send(self, command: bytes) -> Any:
        """Run a command."""
        try:
            if not self._gate.enter():
                self._gate.check(_version(await self._ask(packed(("INFO", "server")))))
            return await self._ask(command)
        except DRIVERS_ERRORS as error:
            raise translate(error) from error

    async def _ask(self, command: bytes) -> Any:
        own = self._of_loop()
        if own.connection is not None and own.connection.has_rested():
            # A loop that was busy may not have noticed a loss yet: one pass polls the socket, the next handles it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        connection = own.connection
        if connection is None or not connection.is_open():
            connection = await wait_in_time(self._connected(own))
        try:
            return await connection.ask(command)
        except ResponseError as error:
            if has_moved(error):
                connection.leave()
            raise

    async def _connected(self, own: _LoopConnection) -> PipelinedConnection:
        """Connect. Callers that waited for a failed attempt share its error and do not try again."""
        since = time.monotonic()
        async with own.connecting:
            if own.connection is None or not own.connection.is_open():
                if own.failure is not None and own.failure[0] >= since:
                    raise own.failure[1]
                try:
                    own.connection = await open_pipelined_connection(self._address)
                except DRIVERS_ERRORS as error:
                    own.failure = time.monotonic(), error
                    raise
                if self._gate.closed:
                    own.connection.leave()
                    self._gate.enter()
            return own.connection

    def _of_loop(self) -> _LoopConnection:
        loop = asyncio.get_running_loop()
        own = self._by_loop.get(loop)
        if own is None:
            with self._lock:
                self._by_loop = {known: p for known, p in self._by_loop.items() if not known.is_closed()}
                own = self._by_loop[loop] = _LoopConnection()
        return own

    async def close(self) -> None:
        """Close this loop's connection once its pending commands have their replies."""
        with self._lock:
            own = self._by_loop.pop(asyncio.get_running_loop(), None)
        if own is not None:
            own.leave()

    def close_soon(self) -> None:
        """Have every loop that is still running close its own connection."""
        with self._lock:
            connections, self._by_loop = self._by_loop, {}
        for loop, own in connections.items():
            with contextlib.suppress(RuntimeError):  # The loop is closed, and so is its connection.
                loop.call_soon_threadsafe(own.leave)


def _version(info: bytes) -> str:
    """Return the version from INFO; Valkey reports the Redis version it is compatible with."""
    lines = (line.partition(b":") for line in info.splitlines())
    return next(value.decode() for name, _, value in lines if name == b"redis_version")
