"""Events part of the client: streams of events and callbacks, for the jobs of every process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, overload

from pgjq.errors import ValidationError
from pgjq.event_stream import AsyncEventStream, EventCallbacks, EventStream
from pgjq.options import check_queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.event_bus import BusEventName
    from pgjq.job import Event, EventName
    from pgjq.storage.base import Operations


class Events:
    """State that the sync and the async client share."""

    _ops: Operations
    _callbacks: EventCallbacks | None = None
    _opening: list[asyncio.Task[Any]]

    async def _listening(self) -> None:
        """Wait for event streams that are opening, so that they get this client's next events."""
        while self._opening:
            await asyncio.wait([self._opening.pop()])


class AsyncEvents(Events):
    """Events of the async client."""

    def subscribe(self, queue: str | None = None) -> AsyncEventStream:
        """Iterate over events of a queue, or all: `async for event in client.subscribe("mail")`.

        Inside `async with client.subscribe() as events:` the stream gets every event from the start of the block.
        """
        self._need_loop()
        stream = AsyncEventStream(self._ops.subscribe(None if queue is None else check_queue(queue)))
        self._opening.append(stream.opening)
        return stream

    @overload
    def on(self, event: Literal["error"], callback: Callable[[BaseException], Any]) -> None: ...
    @overload
    def on(self, event: EventName, callback: Callable[[Event], Any]) -> None: ...
    def on(self, event: BusEventName, callback: Callable[[Any], Any]) -> None:
        """Call a callback, or coroutine function, with each event of this name, from any process.

        `error` callbacks get exceptions: of callbacks, and of the listener's connection.
        """
        self._need_loop()
        self._callbacks = self._callbacks or EventCallbacks(self.subscribe())
        self._callbacks.on(event, callback)

    def _need_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ValidationError("events need a running event loop: call this inside a coroutine") from error


class BlockingEvents(Events):
    """Events of the sync client."""

    def subscribe(self, queue: str | None = None) -> EventStream:
        """Iterate over the events of one queue, or of all: `for event in client.subscribe("mail")`.

        The stream is open from this call on. Use it in a `with`, or close it: while it is open, every change of a job
        also costs a published event.
        """
        return EventStream(self._ops.subscribe(None if queue is None else check_queue(queue)))

    @overload
    def on(self, event: Literal["error"], callback: Callable[[BaseException], Any]) -> None: ...
    @overload
    def on(self, event: EventName, callback: Callable[[Event], Any]) -> None: ...
    def on(self, event: BusEventName, callback: Callable[[Any], Any]) -> None:
        """Call a callback on a thread of this client with each event of this name, from any process.

        `error` callbacks get exceptions: of callbacks, and of the listener's connection.
        """
        self._callbacks = self._callbacks or EventCallbacks(self.subscribe())
        self._callbacks.on(event, callback)
