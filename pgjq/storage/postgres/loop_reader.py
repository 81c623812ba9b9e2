"""Read the listening connection on an event loop, and wake the thread of the listener."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.storage.postgres.listen_connection import ListenConnection


@contextlib.contextmanager
def read_on_loop(
    connection: ListenConnection, delivered: Callable[[], None], failed: Callable[[], None]
) -> Generator[bool]:
    """Deliver notifications on the running event loop until the block ends.

    Yields False if that is impossible now. Never blocks the loop. It polls a descriptor of its own, so that the thread
    may close the connection meanwhile.
    """
    descriptor = connection.duplicate()
    if descriptor is None:
        yield False
        return
    loop = asyncio.get_running_loop()

    def read() -> None:
        try:
            connection.read(blocking=False)
        except psycopg.Error:
            loop.remove_reader(descriptor)
            failed()
        else:
            delivered()

    loop.add_reader(descriptor, read)
    try:
        yield True
    finally:
        loop.remove_reader(descriptor)
        os.close(descriptor)


class WakeupPipe:
    """A pipe that wakes a polling thread; a full pipe wakes it, too, so `wake` never blocks."""

    def __init__(self) -> None:
        self._out, self._into = os.pipe()
        os.set_blocking(self._into, False)
        self._closing = threading.Lock()
        self._closed = False

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._out

    def wake(self) -> None:
        """Wake the thread, from any thread, even after `close`, when the descriptor may be reused."""
        with self._closing, contextlib.suppress(BlockingIOError):
            if not self._closed:
                os.write(self._into, b"x")

    def clear(self) -> None:
        """Take the wake-ups that have arrived; there must be one."""
        os.read(self._out, 4096)

    def close(self) -> None:
        """Close both ends."""
        with self._closing:
            self._closed = True
            os.close(self._into)
            os.close(self._out)
