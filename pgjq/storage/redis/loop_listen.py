"""Listening on an event loop: a connection and a task for each channel and each loop that wants to hear it.

By the rules of `listen.py`. A message reaches whoever awaits it without passing through another thread, which would
have to wait for the interpreter first: of a round trip that was a quarter.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

from redis.exceptions import ConnectionError as Lost

from pgjq.errors import StorageError
from pgjq.storage.redis.audience import Audience
from pgjq.storage.redis.failures import translated
from pgjq.storage.redis.listen import PROBE_SECONDS, RECONNECT_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.mailbox import Mailbox
    from pgjq.storage.redis.address import Address
    from pgjq.storage.redis.audience import Notice, Subject, Subjects


class LoopListener:
    """A channel's listeners, one for each event loop that uses them; see `Listener`."""

    def __init__(self, address: Address, channel: str, subjects: Subjects, *, stays: bool) -> None:
        self._make: Callable[[], _Ear] = lambda: _Ear(address, channel, Audience(subjects, stays=stays))
        self._lock = threading.Lock()
        self._closed = False
        self._ears: dict[asyncio.AbstractEventLoop, _Ear] = {}

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
            ear.audience.leave(subject, box)

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
            ear.audience.dismiss()
            with contextlib.suppress(RuntimeError):  # That loop has been closed, and all that it held.
                loop.call_soon_threadsafe(ear.stop)


class _Ear:
    """A connection on one loop, the task that reads from it, and its audience."""

    def __init__(self, address: Address, channel: str, audience: Audience) -> None:
        self.audience = audience
        self._address = address
        self._channel = channel
        self._starting = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._heard = False

    async def want(self, subject: Subject, box: Mailbox[Notice]) -> None:
        self.audience.join(subject, box)
        try:
            if not self._is_listening():
                async with self._starting:
                    if not self._is_listening():
                        with translated():
                            connection = await self._subscribed()
                        self._task = asyncio.create_task(self._run(connection), name="pgjq listener")
                        await asyncio.sleep(0)  # From its first step on, the task closes the connection in the end.
        except BaseException:
            self.audience.leave(subject, box)
            raise

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        self.audience.dismiss()
        self.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    def _is_listening(self) -> bool:
        return self._task is not None and not self._task.done()

    async def _subscribed(self) -> Any:
        """Connect and subscribe, and wait until the server says so."""
        connection = self._address.async_connection()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await connection.send_command("SUBSCRIBE", self._channel)
                await connection.read_response()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        return connection

    async def _run(self, connection: Any) -> None:
        while connection is not None:
            try:
                # Cut off, redis-py may say anything; and a listener that dies leaves sleepers behind.
                with contextlib.suppress(Exception):
                    await self._listen(connection)
            finally:
                await connection.disconnect(nowait=True)
            connection = await self._reconnected()

    async def _reconnected(self) -> Any:
        while not self._is_over():
            await asyncio.sleep(RECONNECT_SECONDS)
            with contextlib.suppress(Exception):
                connection = await self._subscribed()
                self.audience.resync()
                return connection
        return None

    def _is_over(self) -> bool:
        """Tell whether nobody has wanted anything for a while; whoever does from now on has to begin anew."""
        if self._task is asyncio.current_task() and self.audience.is_gone():
            self._task = None
        return self._task is not asyncio.current_task()

    async def _listen(self, connection: Any) -> None:
        """Have messages handed out, and look now and then whether the connection lives and anybody cares."""
        reading = asyncio.create_task(self._read(connection))
        asked = False
        try:
            while not self._is_over():
                self._heard = False
                await asyncio.wait({reading}, timeout=PROBE_SECONDS)
                if reading.done():
                    await reading
                if not self._heard:
                    if asked:
                        raise Lost("the server has fallen silent")
                    await connection.send_command("PING")
                asked = not self._heard
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def _read(self, connection: Any) -> None:
        while True:
            kind, *_, data = await connection.read_response()
            self._heard = True
            if kind == b"message":
                self.audience.tell(data)
