"""Who waits for something to happen: subscribers for events, sleepers for work, others for the end of one job."""

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
    from pgjq.storage.model.jobs import Jobs


class Audience:
    """Everybody in this process who waits on one storage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str | None, Mailbox[Event]]] = []
        self._sleepers: dict[str, list[Mailbox[None]]] = defaultdict(list)
        self._expected: dict[tuple[str, str], list[Mailbox[None]]] = {}

    @property
    def listens(self) -> bool:
        """Whether anybody would hear what changed."""
        return bool(self._subscribers or self._expected)

    def tell(self, jobs: Jobs) -> None:
        """Tell everybody what an operation did."""
        if not (jobs.awake or self.listens):
            return
        with self._lock:
            for queue in jobs.awake:
                _ring(self._sleepers.get(queue, ()))
            if self._subscribers:
                self._tell_events(jobs.events())
            if self._expected:
                for key in jobs.ended():
                    _ring(self._expected.get(key, ()))

    def _tell_events(self, events: Iterable[Event]) -> None:
        for event in events:
            for queue, box in self._subscribers:
                if queue in (None, event.queue):
                    box.put(event)

    def miss(self) -> None:
        """Have subscribers know that something happened which nobody can tell any more."""
        with self._lock:
            for _, box in self._subscribers:
                box.dropped += 1

    def wake(self) -> None:
        """Have everybody look who waits for jobs."""
        with self._lock:
            for boxes in (*self._sleepers.values(), *self._expected.values()):
                _ring(boxes)

    def expect(self, key: tuple[str, str], colour: Colour) -> Mailbox[None]:
        """Have a box for word that a job of this queue and id has ended, or is gone."""
        box: Mailbox[None] = Mailbox(colour)
        with self._lock:
            self._expected.setdefault(key, []).append(box)
        return box

    def expect_no_more(self, key: tuple[str, str], box: Mailbox[None]) -> None:
        """Take the box away."""
        with self._lock:
            left = [b for b in self._expected.pop(key, ()) if b is not box]
            if left:
                self._expected[key] = left
        box.close()

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
            for waiting in (*self._sleepers.values(), *self._expected.values()):
                boxes += waiting
        for box in boxes:
            box.close()


def _ring(boxes: Iterable[Mailbox[None]]) -> None:
    for box in boxes:
        box.put(None)
