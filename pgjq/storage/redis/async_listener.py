"""Listening on an event loop: a connection and a task for each channel and each loop that wants to hear it.

By the rules of `listen.py`. A message reaches whoever awaits it without passing through another thread, which would
have to wait for the interpreter first: of a round trip that was a quarter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from contextvars import Context
from typing import TYPE_CHECKING, Final

from pgjq.background import Activity
from pgjq.deadline import wait_in_time
from pgjq.errors import PgjqError, StorageError
from pgjq.storage.redis.error_translation import translated
from pgjq.storage.redis.listener import EXPECTED, PROBE_SECONDS, RECONNECT_SECONDS
from pgjq.storage.redis.pipelined_connection import open_pipelined_connection
from pgjq.storage.redis.subscribers import Subscribers
from pgjq.storage.redis.transport import packed

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.address import Address
    from pgjq.storage.redis.pipelined_connection import PipelinedConnection
    from pgjq.storage.redis.subscribers import Notice, Subject, Subjects

PING: Final = packed(("PING",))


class AsyncListener:
    """A channel's listeners, one for each event loop that uses them; see `Listener`."""

    def __init__(self, address: Address, channel: str, subjects: Subjects, *, stays: bool) -> None:
        self._make: Callable[[], _LoopConnection] = lambda: _LoopConnection(
            address, channel, Subscribers(channel, subjects, stays=stays)
        )
        self._lock = threading.Lock()
        self._closed = False
        self._ears: dict[asyncio.AbstractEventLoop, _LoopConnection] = {}

    async def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if self._closed:
                message = "this storage has been closed"
                raise StorageError(message)
            if loop not in self._ears:
                self._ears = {known: ear for known, ear in self._ears.items() if not known.is_closed()}
                self._ears[loop] = self._make()
            ear = self._ears[loop]
        await ear.want(subject, box)

    def leave(self, subject: Subject, box: Mailbox[Notice]) -> None:
        """See `Listener`."""
        for ear in tuple(self._ears.values()):
            ear.subscribers.leave(subject, box)

    def resync(self) -> None:
        """See `Listener`."""
        for ear in tuple(self._ears.values()):
            ear.subscribers.resync()

    async def close_here(self) -> None:
        """See `Listener`."""
        with self._lock:
            ear = self._ears.pop(asyncio.get_running_loop(), None)
        if ear is not None:
            await ear.close()

    def close(self) -> None:
        """See `Listener`."""
        with self._lock:
            self._closed = True
            ears, self._ears = self._ears, {}
        for loop, ear in ears.items():
            ear.subscribers.dismiss()
            with contextlib.suppress(RuntimeError):  # That loop has been closed, and all that it held.
                loop.call_soon_threadsafe(ear.stop)


class _LoopConnection:
    """A connection on one loop, the task that reads from it, and its audience."""

    def __init__(self, address: Address, channel: str, subscribers: Subscribers) -> None:
        self.subscribers = subscribers
        self._address = address
        self._channel = channel
        self._starting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._heard = False
        self._activity = Activity("pgjq listener", self._is_listening)

    async def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
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
                # The task listens for other callers as well, so it has no deadline.
                self._task = asyncio.create_task(self._run(connection), name="pgjq listener", context=Context())
                await asyncio.sleep(0)  # From its first step on, the task closes the connection in the end.

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
        """Connect and subscribe, and wait until the server says so."""
        link = await open_pipelined_connection(self._address, self._hear)
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await link.ask(packed(("SUBSCRIBE", self._channel)))
        except BaseException:
            link.close()
            raise
        return link

    def _hear(self, message: bytes) -> None:
        self._heard = True
        self.subscribers.tell(message)

    async def _run(self, link: PipelinedConnection | None) -> None:
        self._activity.begin()
        try:
            while link is not None:
                try:
                    await self._listen(link)
                except Exception as error:  # noqa: BLE001  (a listener that dies leaves sleepers behind)
                    self._note(error)
                finally:
                    link.close()
                link = await self._reconnected()
        finally:
            self._activity.end()

    def _note(self, error: Exception) -> None:
        """Record what ended a connection, and log it if no lost connection explains it."""
        (self._activity.note if isinstance(error, (*EXPECTED, PgjqError)) else self._activity.report)(error)

    async def _reconnected(self) -> PipelinedConnection | None:
        while not self._is_over():
            await asyncio.sleep(RECONNECT_SECONDS)
            try:
                link = await self._subscribed()
            except Exception as error:  # noqa: BLE001
                self._note(error)
            else:
                self.subscribers.resync()
                return link
        return None

    def _is_over(self) -> bool:
        """Tell whether nobody has wanted anything for a while; whoever does from now on has to begin anew."""
        if self._task is asyncio.current_task() and self.subscribers.is_gone():
            self._task = None
        return self._task is not asyncio.current_task()

    async def _listen(self, link: PipelinedConnection) -> None:
        """Look now and then whether the connection lives and anybody cares, until it is lost or nobody does."""
        while not (self._is_over() or link.lost.done()):
            self._heard = False
            self._activity.touch()
            await asyncio.wait({link.lost}, timeout=PROBE_SECONDS)
            if not self._heard:
                async with asyncio.timeout(PROBE_SECONDS):
                    await link.ask(PING)
