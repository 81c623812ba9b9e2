"""Who waits for something to happen to jobs: subscribers for events, sleepers for work."""

from __future__ import annotations

import threading
from collections import defaultdict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pgjq.storage.mailbox import Mailbox, MailSubscription

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from pgjq.blocking import Colour
    from pgjq.job import Event


class Audience:
    """Everybody in this process who waits on one storage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str | None, Mailbox[Event]]] = []
        self._sleepers: dict[str, list[Mailbox[None]]] = defaultdict(list)

    @property
    def listens(self) -> bool:
        """Whether anybody would hear an event."""
        return bool(self._subscribers)

    def tell(self, events: Iterable[Event]) -> None:
        """Tell subscribers what happened."""
        with self._lock:
            for event in events:
                for queue, box in self._subscribers:
                    if queue in (None, event.queue):
                        box.put(event)

    def miss(self) -> None:
        """Have subscribers know that something happened which nobody can tell any more."""
        with self._lock:
            for _, box in self._subscribers:
                box.dropped += 1

    def wake(self, queues: Iterable[str] | None = None) -> None:
        """Wake those who sleep on these queues; by default, have everybody look."""
        with self._lock:
            for queue in self._sleepers if queues is None else queues:
                for box in self._sleepers.get(queue, ()):
                    box.put(None)

    def subscribe(self, queue: str | None, colour: Colour) -> MailSubscription:
        """Listen to one queue or to all."""
        box: Mailbox[Event] = Mailbox(colour)
        with self._lock:
            self._subscribers.append((queue, box))
        return MailSubscription(box, lambda: self._leave(box))

    def _leave(self, box: Mailbox[Event]) -> None:
        with self._lock:
            self._subscribers = [(queue, b) for queue, b in self._subscribers if b is not box]

    @contextmanager
    def sleeping(self, queues: Sequence[str], colour: Colour) -> Generator[Mailbox[None]]:
        """Have a box that a wake-up for one of the queues falls into."""
        box: Mailbox[None] = Mailbox(colour)
        with self._lock:
            for queue in queues:
                self._sleepers[queue].append(box)
        try:
            yield box
        finally:
            with self._lock:
                for queue in queues:
                    self._sleepers[queue].remove(box)

    def close(self) -> None:
        """End every wait."""
        with self._lock:
            boxes: list[Mailbox[Any]] = [box for _, box in self._subscribers]
            boxes += [box for sleeping in self._sleepers.values() for box in sleeping]
        for box in boxes:
            box.close()
