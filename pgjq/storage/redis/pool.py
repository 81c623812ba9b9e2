"""Connections to a server: a pool for threads, and one for each event loop, which its callers share.

They are redis-py's connections without its client around them, which costs two thirds of a call. Nothing is sent twice:
whether a command whose answer was lost was done is the caller's question. A connection that died while it was idle is
connected anew before it is used, so a restart of the server is noticed by those alone whose call was under way. A
thread's whose call was broken off is closed, because an answer may still be on its way.

No call waits past its deadline (`pgjq.deadline`). A thread waits for the first bytes of an answer in short steps. To
connect, and to send a command that the buffers of a socket may not hold, may block in the driver: with a deadline
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
# What an idle connection takes at once, whatever the server does: the least that a socket's buffer begins with.
SMALL_BYTES: Final = 16_384


class SyncPool(Packed):
    """Connections for threads. A forked child begins with none."""

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
            self._begin()  # The parent's connections must not even be closed here.
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


def _exchange(connection: Any, command: bytes, deadline: Deadline = UNLIMITED, patience: float = inf) -> Any:
    """Send a command and return its answer; without a deadline the driver waits as long as it was made to."""
    connection.send_packed_command([command])
    until = time.monotonic() + patience
    while deadline is not UNLIMITED and not connection.can_read(min(LOOK_SECONDS, deadline.left)):
        if time.monotonic() >= min(until, deadline.until):
            raise TimeoutError(NO_ANSWER)
    return connection.read_response()


class _Place:
    """The connection of one event loop."""

    def __init__(self) -> None:
        self.connecting = asyncio.Lock()
        self.link: PipelinedConnection | None = None
        self.failure: tuple[float, Exception] | None = None  # Of the last try to connect, and when.

    def leave(self) -> None:
        if self.link is not None:
            self.link.leave()


class AsyncPool(Packed):
    """Connections for event loops: each has its own."""

    def __init__(self, gate: Gate, address: Address) -> None:
        self._gate = gate
        self._address = address
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, _Place] = {}

    async def send(self, command: bytes) -> Any:
        """Run a command."""
        try:
            if not self._gate.enter():
                self._gate.check(_version(await self._ask(packed(("INFO", "server")))))
            return await self._ask(command)
        except DRIVERS_ERRORS as error:
            raise translate(error) from error

    async def _ask(self, command: bytes) -> Any:
        place = self._place()
        if place.link is not None and place.link.has_rested():
            # A loop that was kept busy has not heard yet what happened meanwhile: it looks, and then acts.
            await asyncio.sleep(0)
            await asyncio.sleep(0)
        link = place.link
        if link is None or not link.is_open():
            link = await wait_in_time(self._connected(place))
        try:
            return await link.ask(command)
        except ResponseError as error:
            if has_moved(error):
                link.leave()
            raise

    async def _connected(self, place: _Place) -> PipelinedConnection:
        """Connect. Whoever waited while somebody tried in vain shares that, and does not try after one another."""
        since = time.monotonic()
        async with place.connecting:
            if place.link is None or not place.link.is_open():
                if place.failure is not None and place.failure[0] >= since:
                    raise place.failure[1]
                try:
                    place.link = await open_pipelined_connection(self._address)
                except DRIVERS_ERRORS as error:
                    place.failure = time.monotonic(), error
                    raise
                if self._gate.closed:
                    place.link.leave()
                    self._gate.enter()
            return place.link

    def _place(self) -> _Place:
        loop = asyncio.get_running_loop()
        place = self._by_loop.get(loop)
        if place is None:
            with self._lock:
                self._by_loop = {known: p for known, p in self._by_loop.items() if not known.is_closed()}
                place = self._by_loop[loop] = _Place()
        return place

    async def close(self) -> None:
        """Close this loop's connection, when what was asked has been answered."""
        with self._lock:
            place = self._by_loop.pop(asyncio.get_running_loop(), None)
        if place is not None:
            place.leave()

    def close_soon(self) -> None:
        """Have every loop that is still running close its own connection."""
        with self._lock:
            places, self._by_loop = self._by_loop, {}
        for loop, place in places.items():
            with contextlib.suppress(RuntimeError):  # That loop has been closed, and all that it held.
                loop.call_soon_threadsafe(place.leave)


def _version(info: bytes) -> str:
    """Find the version in what INFO says; Valkey gives that of the Redis it can stand for."""
    lines = (line.partition(b":") for line in info.splitlines())
    return next(value.decode() for name, _, value in lines if name == b"redis_version")
