"""Events of all processes, as an iterator and as callbacks.

A stream gets the events that happen after it opened. It buffers a bounded number of events; beyond that it drops the
oldest and counts them in `dropped`. Events that happen while the connection to the storage is lost are missed and not
counted. An event names the job and what happened, without the result: subscribers read it if they need it.
"""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from typing import TYPE_CHECKING, Any, Self

from pgjq.background import BackgroundThread
from pgjq.blocking import drive
from pgjq.errors import PgjqError, StorageError, ValidationError
from pgjq.event_bus import NAMES, BusEventName, EventBus
from pgjq.worker.periodic_thread import cancel

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

    from pgjq.job import Event
    from pgjq.storage.base import Subscription

# A wait ends with an event, or when the storage or the stream closes; this is only how often a wait is restarted.
# A shorter wait would find no more: an event that the listener missed is not stored anywhere, and a mailbox keeps what
# is put into it before the wait.
LONG = 3600.0
# A warning is about a queue and comes from the maintenance leader, not from the queue's own worker.
ANYWHERE = (*NAMES, "warning", "tick")


class _EventStream:
    """State that both streams share."""

    def __init__(self) -> None:
        self._subscription: Subscription | None = None
        self._taken: deque[Event] = deque()
        self._closed = False

    @property
    def dropped(self) -> int:
        """The number of events dropped because the buffer was full."""
        return 0 if self._subscription is None else self._subscription.dropped

    async def _next(self, subscription: Subscription) -> Event | None:
        """Wait for an event; return None when the stream was closed."""
        while not self._taken and not self._closed:
            try:
                self._taken.extend(await subscription.next(LONG))
            except StorageError:
                if not self._closed:
                    raise
        return None if self._closed else self._taken.popleft()

    async def _close(self) -> None:
        self._closed = True
        if self._subscription is not None:
            await self._subscription.close()


class EventStream(_EventStream):
    """A blocking iterator of events, open once created; close it, or use it in a `with`."""

    def __init__(self, opening: Coroutine[Any, Any, Subscription]) -> None:
        super().__init__()
        self._opened = self._subscription = drive(opening)

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Event:
        event = drive(self._next(self._opened))
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """Stop listening, from any thread; a wait for the next event ends."""
        drive(self._close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncEventStream(_EventStream):
    """An async iterator of events; iteration opens it, and so do `async with` and `await`."""

    def __init__(self, opening: Coroutine[Any, Any, Subscription]) -> None:
        super().__init__()
        self.opening = asyncio.get_running_loop().create_task(opening, name="pgjq feed")

    def __await__(self) -> Generator[Any, None, Self]:
        return self._open().__await__()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        await self._open()
        event = None if self._subscription is None else await self._next(self._subscription)
        if event is None:
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """Stop listening; a wait for the next event ends. Also closes a stream that failed to open."""
        await asyncio.wait([self.opening])
        if not self.opening.cancelled() and self.opening.exception() is None:
            self._subscription = self.opening.result()
        await self._close()

    async def __aenter__(self) -> Self:
        return await self._open()

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def _open(self) -> Self:
        self._subscription = await asyncio.shield(self.opening)
        return self


class EventCallbacks:
    """Callbacks for the events of all processes, called from a thread or from the event loop."""

    def __init__(self, feed: EventStream | AsyncEventStream) -> None:
        self.bus = EventBus(names=ANYWHERE)
        self._feed = feed
        self._dropped = 0
        self._task: asyncio.Task[None] | None = None
        self._thread: BackgroundThread | None = None
        if isinstance(feed, EventStream):
            self._thread = BackgroundThread("pgjq events", lambda: self._listen(feed))
            self._thread.start()
        else:
            self._task = asyncio.get_running_loop().create_task(self._listen_async(feed), name="pgjq events")

    def on(self, name: BusEventName, callback: Callable[[Any], Any]) -> None:
        """Call a callback with each event of a name."""
        if isinstance(self._feed, EventStream) and inspect.iscoroutinefunction(callback):
            raise ValidationError("a coroutine function needs an event loop: use AsyncClient, or a plain function")
        self.bus.on(name, callback)

    async def close(self) -> None:
        """Stop listening."""
        if isinstance(self._feed, EventStream):
            self._feed.close()
        elif self._task is not None:
            await cancel(self._task)
            await self._feed.close()

    def _listen(self, feed: EventStream) -> None:
        try:
            for event in feed:
                self._deliver(event)
        except PgjqError as error:
            self.bus.error(error, "event listener stopped")

    async def _listen_async(self, feed: AsyncEventStream) -> None:
        try:
            async for event in feed:
                self._deliver(event)
        except PgjqError as error:
            self.bus.error(error, "event listener stopped")

    def _deliver(self, event: Event) -> None:
        self.bus.publish(event)
        if (dropped := self._feed.dropped) > self._dropped:
            lost, self._dropped = dropped - self._dropped, dropped
            self.bus.error(PgjqError(f"{lost} events dropped: the callbacks are slower than the events"), "listening")
