"""Connections to a server: a pool for threads, one shared connection for each event loop.

* No command is sent twice: after a lost reply the caller finds out whether the command was done.
* A connection that died while idle is replaced before it is used, so a restart of the server fails only the calls in
  progress. A thread's connection whose call was interrupted is closed, because its reply may still arrive.
* No call waits past its deadline (`pgjq.deadline`). Connecting may block in the resolver of names: with a deadline
  another thread does it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import ResponseError

from pgjq.deadline import acquire_in_time, call_in_time, wait_in_time
from pgjq.errors import StorageUnavailableError
from pgjq.fork import ForkCheck
from pgjq.storage.per_loop import PerLoop
from pgjq.storage.redis.error_translation import DRIVERS_ERRORS, is_wrong_server, translate, translated
from pgjq.storage.redis.pipelined_connection import open_pipelined_connection
from pgjq.storage.redis.resp import pack, version
from pgjq.storage.redis.sync_connection import SyncConnection
from pgjq.storage.redis.transport import Gate, Transport

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.storage.redis.address import Address
    from pgjq.storage.redis.pipelined_connection import PipelinedConnection
    from pgjq.storage.redis.resp import Word

CONNECTIONS: Final = 32
PATIENCE: Final = 30.0
BUSY: Final = f"all {CONNECTIONS} connections are busy"


class SyncPool(Transport):
    """Connections for threads. A forked child starts with none."""

    def __init__(self, gate: Gate, address: Address) -> None:
        self._gate = gate
        self._address = address
        self._begin()

    def _begin(self) -> None:
        self._fork = ForkCheck()
        self._idle: list[SyncConnection] = []
        self._room = threading.Semaphore(CONNECTIONS)

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        if not self._gate.enter():
            self._gate.check(version(self._ask(pack("INFO", "server"))))
        return self._ask(pack(*words))

    def _ask(self, command: bytes) -> Any:
        with translated(), self._borrowed() as connection:
            return connection.ask(command)

    @contextlib.contextmanager
    def _borrowed(self) -> Generator[SyncConnection]:
        if self._fork.happened:
            self._begin()
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

    def _pick(self) -> SyncConnection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_stale():
                return connection
            connection.close()
        return call_in_time(lambda: SyncConnection(self._address), discard=SyncConnection.close)

    def _settle(self, connection: SyncConnection, error: BaseException) -> None:
        """Keep the connection if the server replied; drop all after a demotion or a silence."""
        if isinstance(error, TimeoutError) or is_wrong_server(error):
            connection.close()
            self.close_now()
        elif not isinstance(error, ResponseError):
            connection.close()
        else:
            self._keep(connection)

    def _keep(self, connection: SyncConnection) -> None:
        self._idle.append(connection)
        if self._gate.closed:
            self.close_now()

    async def close(self) -> None:
        """Close the idle connections; a busy one is closed or kept by the call that uses it."""
        self.close_now()

    def close_now(self) -> None:
        """Do what `close` does, without a coroutine."""
        if not self._fork.happened:
            while self._idle:
                self._idle.pop().close()


class _LoopConnection:
    """The connection of one event loop."""

    def __init__(self) -> None:
        self.connecting = asyncio.Lock()
        self.connection: PipelinedConnection | None = None
        self.failure: tuple[float, Exception] | None = None  # Time and error of the last failed connect.
        self.closed = False

    def leave(self) -> None:
        self.closed = True
        if self.connection is not None:
            self.connection.leave()


class AsyncPool(Transport):
    """Connections for event loops, one for each."""

    def __init__(self, gate: Gate, address: Address) -> None:
        self._gate = gate
        self._address = address
        self._loops = PerLoop(_LoopConnection)

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        try:
            if not self._gate.enter():
                self._gate.check(version(await self._ask(pack("INFO", "server"))))
            return await self._ask(pack(*words))
        except DRIVERS_ERRORS as error:
            raise translate(error) from error

    async def _ask(self, command: bytes) -> Any:
        own = self._loops.get()
        if own.connection is not None and own.connection.is_long_idle():
            # A loop that was busy may not have noticed a loss yet: one pass polls the socket, the next handles it.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        connection = own.connection
        if connection is None or not connection.is_open():
            connection = await wait_in_time(self._connected(own))
        try:
            return await connection.ask(command)
        except ResponseError as error:
            if is_wrong_server(error):
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
                if own.closed or self._gate.closed:
                    own.connection.leave()
                    self._gate.enter()
            return own.connection

    async def close(self) -> None:
        """Close this loop's connection once its pending commands have their replies."""
        if (own := self._loops.pop()) is not None:
            own.leave()

    def drop(self) -> None:
        """Have every loop open another connection for its next command."""
        for loop, own in self._loops.items():
            if (connection := own.connection) is not None:
                with contextlib.suppress(RuntimeError):  # The loop is closed, and so is its connection.
                    loop.call_soon_threadsafe(connection.leave)

    def close_soon(self) -> None:
        """Have every loop that is still running close its own connection."""
        for loop, own in self._loops.pop_all().items():
            with contextlib.suppress(RuntimeError):  # The loop is closed, and so is its connection.
                loop.call_soon_threadsafe(own.leave)
