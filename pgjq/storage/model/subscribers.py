"""Who waits for something to happen: subscribers for events, sleepers for work, others for the end of one job."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pgjq.storage.mailbox import Mailbox, MailboxSubscription

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import Event
    from pgjq.storage.model.jobs import Jobs


# What a sleeper is told: that there is work, or only that it should look again.
WORK: Final = True
LOOK: Final = False


class Sleeper:
    """A worker that waits for jobs of some queues, and when it will look by itself because one is due then.

    `due` changes only inside an operation of the storage, so that no job is filed between a look and its noting.
    """

    __slots__ = ("box", "due", "queues")

    def __init__(self, queues: Sequence[str], mode: Mode) -> None:
        self.box: Mailbox[bool] = Mailbox(mode)
        self.due: datetime | None = None
        self.queues = queues

    def look(self, jobs: Jobs) -> float | None:
        """Tell in how many seconds there may be a job to claim, 0 or less for now; None: not as things are."""
        self.due = jobs.next_due(self.queues)
        return None if self.due is None else (self.due - jobs.now).total_seconds()

    def is_late_for(self, due: datetime) -> bool:
        """Whether it would sleep past that time."""
        return self.due is None or due < self.due

    def look_by(self, due: datetime) -> None:
        """Have it look again, because a job is due then; jobs due later than that need not tell it once more."""
        self.due = due
        self.box.put(LOOK)


class Subscribers:
    """Everybody in this process who waits on one storage."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str | None, Mailbox[Event]]] = []
        self._sleepers: dict[str, list[Sleeper]] = {}
        self._expected: dict[tuple[str, str], list[Mailbox[bool]]] = {}

    @property
    def listens(self) -> bool:
        """Whether anybody would hear what changed."""
        return bool(self._subscribers or self._expected)

    def tell(self, jobs: Jobs) -> None:
        """Tell everybody what an operation did."""
        if not (jobs.awake or jobs.later or self.listens):
            return
        with self._lock:
            if self._sleepers:
                self._wake(jobs)
            if self._subscribers:
                self._tell_events(jobs.events())
            if self._expected:
                for key in jobs.ended():
                    for box in self._expected.get(key, ()):
                        box.put(LOOK)

    def _wake(self, jobs: Jobs) -> None:
        for queue in filter(jobs.is_open, jobs.awake):
            for sleeper in self._sleepers.get(queue, ()):
                sleeper.box.put(WORK)
        for queue, due in jobs.later.items():
            for sleeper in self._sleepers.get(queue, ()):
                if sleeper.is_late_for(due) and jobs.is_open(queue):
                    sleeper.look_by(due)

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
        """Have every sleeper and every waiter look again."""
        with self._lock:
            for box in self._waiting_boxes():
                box.put(LOOK)

    def result_waiter(self, key: tuple[str, str], mode: Mode) -> Mailbox[bool]:
        """Have a box for word that a job of this queue and id has ended, or is gone."""
        box: Mailbox[bool] = Mailbox(mode)
        with self._lock:
            self._expected.setdefault(key, []).append(box)
        return box

    def expect_no_more(self, key: tuple[str, str], box: Mailbox[bool]) -> None:
        """Take the box away."""
        with self._lock:
            left = [b for b in self._expected.pop(key, ()) if b is not box]
            if left:
                self._expected[key] = left
        box.close()

    def subscribe(self, queue: str | None, mode: Mode) -> MailboxSubscription:
        """Listen to one queue or to all."""
        box: Mailbox[Event] = Mailbox(mode)
        with self._lock:
            self._subscribers.append((queue, box))
        return MailboxSubscription(box, lambda: self._leave(box))

    def _leave(self, box: Mailbox[Event]) -> None:
        with self._lock:
            self._subscribers = [(queue, b) for queue, b in self._subscribers if b is not box]

    @contextmanager
    def sleeping(self, queues: Sequence[str], mode: Mode) -> Generator[Sleeper]:
        """Have a sleeper told of jobs in some queues, for as long as the block lasts."""
        sleeper = Sleeper(queues, mode)
        with self._lock:
            for queue in queues:
                self._sleepers.setdefault(queue, []).append(sleeper)
        try:
            yield sleeper
        finally:
            with self._lock:
                for queue in queues:
                    self._leave_queue(queue, sleeper)

    def _leave_queue(self, queue: str, sleeper: Sleeper) -> None:
        sleepers = self._sleepers[queue]
        sleepers.remove(sleeper)
        if not sleepers:
            del self._sleepers[queue]

    def _waiting_boxes(self) -> set[Mailbox[bool]]:
        sleepers = {sleeper.box for sleepers in self._sleepers.values() for sleeper in sleepers}
        return sleepers.union(*self._expected.values())

    def close(self) -> None:
        """End every wait."""
        with self._lock:
            boxes: list[Mailbox[Any]] = [*(box for _, box in self._subscribers), *self._waiting_boxes()]
        for box in boxes:
            box.close()
