"""Listeners for event loops: one connection and one task for each channel and loop.

They follow the rules of `listener.py`. A message does not pass through another thread on its way to the coroutine:
that thread would wait for the interpreter lock first, a quarter of a round trip.
"""

from __future__ import annotations

import asyncio
import contextlib
from contextvars import Context
from typing import TYPE_CHECKING, Final

from pgjq.background import Activity
from pgjq.deadline import wait_in_time
from pgjq.errors import PgjqError, storage_closed
from pgjq.storage.per_loop import PerLoop
from pgjq.storage.redis.error_translation import translated
from pgjq.storage.redis.listener import EXPECTED, PROBE_SECONDS, RECONNECT_SECONDS
from pgjq.storage.redis.pipelined_connection import open_pipelined_connection
from pgjq.storage.redis.resp import pack
from pgjq.storage.redis.subscribers import Subscribers

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.address import Address
    from pgjq.storage.redis.pipelined_connection import PipelinedConnection
    from pgjq.storage.redis.subscribers import Notice, Subject, Subjects

PING: Final = pack("PING")


class AsyncListener:
    """A channel's listeners, one for each event loop that uses the channel; see `Listener`."""

    def __init__(
        self, address: Address, channel: str, subjects: Subjects, *, stays: bool, on_silence: Callable[[], None]
    ) -> None:
        self._closed = False
        self._on_silence = on_silence
        self._loops = PerLoop(lambda: self._make(address, channel, Subscribers(channel, subjects, stays=stays)))

    def _make(self, address: Address, channel: str, subscribers: Subscribers) -> _LoopConnection:
        if self._closed:
            raise storage_closed()
        return _LoopConnection(address, channel, subscribers, self._on_silence)

    async def subscribe(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        await self._loops.get().subscribe(subject, box)

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        for connection in self._loops.values():
            connection.subscribers.leave(subject, box)

    def resync(self) -> None:
        """See `Listener`."""
        for connection in self._loops.values():
            connection.subscribers.resync()

    async def close_here(self) -> None:
        """See `Listener`."""
        connection = self._loops.pop()
        if connection is not None:
            await connection.close()

    def close(self) -> None:
        """See `Listener`."""
        self._closed = True
        for loop, connection in self._loops.pop_all().items():
            connection.subscribers.dismiss()
            with contextlib.suppress(RuntimeError):  # The loop is closed, and so are its connections.
                loop.call_soon_threadsafe(connection.stop)


class _LoopConnection:
    """A connection on one loop, the task that watches it, and its subscribers."""

    def __init__(
        self, address: Address, channel: str, subscribers: Subscribers, on_silence: Callable[[], None]
    ) -> None:
        self.subscribers = subscribers
        self._on_silence = on_silence
        self._address = address
        self._channel = channel
        self._starting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._received = False
        self._activity = Activity("pgjq listener", self._is_listening)

    async def subscribe(self, subject: Subject, box: Mailbox[Notice]) -> None:
        self.subscribers.join(subject, box)
        try:
            if not self._is_listening():
                with translated():
                    await wait_in_time(self._start())
        except BaseException:
            self.subscribers.leave(subject, box)
            raise

    async def _start(self) -> None:
        async with self._starting:
            if not self._is_listening():
                connection = await self._subscribed()
                # The task listens for other callers as well, so it must not inherit this caller's deadline.
                self._task = asyncio.create_task(self._run(connection), name="pgjq listener", context=Context())
                await asyncio.sleep(0)  # Once its first step has run, the task is sure to close the connection.

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.subscribers.dismiss()
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_listening(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _subscribed(self) -> PipelinedConnection:
        """Connect and subscribe, and wait for the server's confirmation."""
        connection = await open_pipelined_connection(self._address, self._receive)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.ask(pack("SUBSCRIBE", self._channel))
        except BaseException:
            connection.close()
            raise
        return connection

    def _receive(self, message: bytes) -> None:
        self._received = True
        self.subscribers.deliver(message)

    async def _run(self, connection: PipelinedConnection | None) -> None:
        self._activity.begin()
        try:
            while connection is not None:
                try:
                    await self._listen(connection)
                except Exception as error:  # noqa: BLE001  (if the listener ended, sleepers would not be woken)
                    self._note(error)
                    if isinstance(error, TimeoutError):
                        self._on_silence()
                finally:
                    connection.close()
                connection = await self._reconnected()
        finally:
            self._activity.end()

    def _note(self, error: Exception) -> None:
        """Record what ended a connection, and log it if no lost connection explains it."""
        (self._activity.note if isinstance(error, (*EXPECTED, PgjqError)) else self._activity.report)(error)

    async def _reconnected(self) -> PipelinedConnection | None:
        while not self._is_over():
            await asyncio.sleep(RECONNECT_SECONDS)
            try:
                connection = await self._subscribed()
            except Exception as error:  # noqa: BLE001
                self._note(error)
            else:
                self.subscribers.resync()
                return connection
        return None

    def _is_over(self) -> bool:
        """Return whether this task ends for lack of subscribers; the next one starts a new task."""
        if self._task is asyncio.current_task() and self.subscribers.is_gone():
            self._task = None
        return self._task is not asyncio.current_task()

    async def _listen(self, connection: PipelinedConnection) -> None:
        """Probe the connection after each silence, until it is lost or no subscriber needs it."""
        while not (self._is_over() or connection.lost.done()):
            self._received = False
            self._activity.touch()
            await asyncio.wait({connection.lost}, timeout=PROBE_SECONDS)
            if not self._received:
                async with asyncio.timeout(PROBE_SECONDS):
                    await connection.ask(PING)
