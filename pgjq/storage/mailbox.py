"""A bounded queue from any thread to one receiver, which waits in sync or async mode.

`put` never blocks: in a full mailbox it drops the oldest item, and `dropped` counts it. `take` misses no item, whether
it begins before or after the `put`: a thread waits for a condition on the items, under their lock; for an event loop
the wake-up is a callback on that loop, which runs after `take` has begun to wait.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from typing import TYPE_CHECKING, Generic, TypeVar

from pgjq.errors import StorageError, storage_closed

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from pgjq.blocking import Mode
    from pgjq.job import Event

T = TypeVar("T")

CAPACITY = 10_000


class Mailbox(Generic[T]):
    """The receiver makes it, in its own mode and, if that is async, on its event loop."""

    def __init__(self, mode: Mode, capacity: int = CAPACITY) -> None:
        self.dropped = 0
        self.closed = False
        self._items: deque[T] = deque(maxlen=capacity)
        self._changed = threading.Condition()
        self._loop = asyncio.get_running_loop() if mode == "async" else None
        self._awaited = asyncio.Event() if mode == "async" else None

    def put(self, item: T) -> None:
        """Add an item, from any thread."""
        with self._changed:
            self.dropped += len(self._items) == self._items.maxlen
            self._items.append(item)
        self._notify()

    def close(self) -> None:
        """End the receiver's wait: no more items will come. From any thread."""
        self.closed = True
        self._notify()

    async def take(self, timeout: float) -> list[T]:
        """Wait up to `timeout` seconds for items and return all of them; an empty list if none came."""
        if self._awaited is None:
            with self._changed:
                self._changed.wait_for(lambda: self._items or self.closed, timeout)
        elif not self._items and not self.closed:
            self._awaited.clear()
            try:
                async with asyncio.timeout(timeout):
                    await self._awaited.wait()
            except TimeoutError:
                return []
        with self._changed:
            taken = list(self._items)
            self._items.clear()
        if self.closed and not taken:
            raise storage_closed()
        return taken

    def _notify(self) -> None:
        if self._loop is None or self._awaited is None:
            with self._changed:
                self._changed.notify_all()
        elif _is_running_here(self._loop):
            self._awaited.set()
        else:
            with contextlib.suppress(RuntimeError):  # The loop is closed, so the receiver waits no more.
                self._loop.call_soon_threadsafe(self._awaited.set)


def _is_running_here(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False


class MailboxSubscription:
    """Events that arrive in a mailbox, until it is closed."""

    def __init__(self, box: Mailbox[Event], leave: Callable[[], None]) -> None:
        self._box = box
        self._leave = leave
        self._left = False

    @property
    def dropped(self) -> int:
        """How many events were dropped because the mailbox was full."""
        return self._box.dropped

    async def next(self, timeout: float) -> list[Event]:
        """Wait for events."""
        return await self._box.take(timeout)

    async def close(self) -> None:
        """Stop listening."""
        if not self._left:
            self._left = True
            self._leave()
            self._box.close()

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events until this is closed."""
        while not self._left:
            try:
                events = await self._box.take(1.0)
            except StorageError:
                if self._left:
                    return
                raise
            for event in events:
                yield event
