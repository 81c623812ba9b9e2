"""Notify the subscribers, sleeping workers and result waiters of one process."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pgjq.storage.mailbox import Mailbox, MailboxSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import Event
    from pgjq.storage.model.jobs import Jobs


# Notifications to a sleeper: there is work, or check again.
WORK: Final = True
LOOK: Final = False


class Sleeper:
    """A worker that sleeps until its queues have a job; `due` is when it wakes by itself.

    `due` changes only inside an operation of the storage, so that no job is added between reading and recording it.
    """

    __slots__ = ("box", "due", "queues")

    def __init__(self, queues: Sequence[str], mode: Mode) -> None:
        self.box: Mailbox[bool] = Mailbox(mode)
        self.due: datetime | None = None
        self.queues = queues

    def seconds_until_work(self, jobs: Jobs) -> float | None:
        """Return the seconds until there is a job to claim, 0 or less for now, None without any."""
        self.due = jobs.next_due(self.queues)
        return None if self.due is None else (self.due - jobs.now).total_seconds()

    def is_late_for(self, due: datetime) -> bool:
        """Return whether it would sleep past that time."""
        return self.due is None or due < self.due

    def check_by(self, due: datetime) -> None:
        """Make it check again, because a job is due then; jobs due later need not wake it again."""
        self.due = due
        self.box.put(LOOK)


class Subscribers:
    """All receivers of one storage in this process. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: list[tuple[str | None, Mailbox[Event]]] = []
        self._sleepers: dict[str, list[Sleeper]] = {}
        self._waiters: dict[tuple[str, str], list[Mailbox[bool]]] = {}
        self._schedule_watchers: list[Callable[[], None]] = []

    @property
    def listens(self) -> bool:
        """Whether there is a subscriber or a result waiter, so that changes must be recorded."""
        return bool(self._subscribers or self._waiters)

    def publish(self, jobs: Jobs) -> None:
        """Notify all receivers of the changes of an operation."""
        if not (jobs.awake or jobs.later or jobs.schedule_changes or self.listens):
            return
        with self._lock:
            if jobs.schedule_changes:
                self._wake_watchers()
            if self._sleepers:
                self._wake(jobs)
            if self._subscribers:
                self._publish_events(jobs.events())
            if self._waiters:
                for key in jobs.ended():
                    for box in self._waiters.get(key, ()):
                        box.put(LOOK)

    def _wake(self, jobs: Jobs) -> None:
        for queue in filter(jobs.is_open, jobs.awake):
            for sleeper in self._sleepers.get(queue, ()):
                sleeper.box.put(WORK)
        for queue, due in jobs.later.items():
            for sleeper in self._sleepers.get(queue, ()):
                if sleeper.is_late_for(due) and jobs.is_open(queue):
                    sleeper.check_by(due)

    def _publish_events(self, events: Iterable[Event]) -> None:
        for event in events:
            for queue, box in self._subscribers:
                if queue in (None, event.queue):
                    box.put(event)

    def miss(self) -> None:
        """Count events that were lost as dropped, for every subscriber."""
        with self._lock:
            for _, box in self._subscribers:
                box.dropped += 1

    def wake(self) -> None:
        """Make every sleeper and every waiter check again."""
        with self._lock:
            for box in self._waiting_boxes():
                box.put(LOOK)
            self._wake_watchers()

    def watch_schedules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, which must not block, when a schedule or the clock is set; return an undo."""
        with self._lock:
            self._schedule_watchers.append(changed)
        return lambda: self._unwatch_schedules(changed)

    def _unwatch_schedules(self, changed: Callable[[], None]) -> None:
        with self._lock:
            self._schedule_watchers = [other for other in self._schedule_watchers if other is not changed]

    def _wake_watchers(self) -> None:
        for changed in self._schedule_watchers:
            changed()

    def result_waiter(self, key: tuple[str, str], mode: Mode) -> Mailbox[bool]:
        """Return a mailbox that is notified when a job of this queue and id ends or is deleted."""
        box: Mailbox[bool] = Mailbox(mode)
        with self._lock:
            self._waiters.setdefault(key, []).append(box)
        return box

    def expect_no_more(self, key: tuple[str, str], box: Mailbox[bool]) -> None:
        """Close a result waiter's mailbox and remove it."""
        with self._lock:
            left = [b for b in self._waiters.pop(key, ()) if b is not box]
            if left:
                self._waiters[key] = left
        box.close()

    def subscribe(self, queue: str | None, mode: Mode) -> MailboxSubscription:
        """Subscribe to the events of one queue or of all."""
        box: Mailbox[Event] = Mailbox(mode)
        with self._lock:
            self._subscribers.append((queue, box))
        return MailboxSubscription(box, lambda: self._leave(box))

    def _leave(self, box: Mailbox[Event]) -> None:
        with self._lock:
            self._subscribers = [(queue, b) for queue, b in self._subscribers if b is not box]

    @contextmanager
    def sleeping(self, queues: Sequence[str], mode: Mode) -> Generator[Sleeper]:
        """Return a sleeper that is woken by jobs in some queues, until the block ends."""
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
        return sleepers.union(*self._waiters.values())

    def close(self) -> None:
        """End every wait."""
        with self._lock:
            boxes: list[Mailbox[Any]] = [*(box for _, box in self._subscribers), *self._waiting_boxes()]
        for box in boxes:
            box.close()
