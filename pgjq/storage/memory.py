"""MemoryStorage: a storage inside one process, the reference for tests of the others.

Every operation holds one lock, so it is atomic. Threads and event loops of the process may share the storage; waiters
are woken, and none polls. Nothing survives the process, and there is no leader election.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, TypeVar

from pgjq.errors import UnsupportedError, storage_closed
from pgjq.storage.base import Capabilities, Operations
from pgjq.storage.clock import StorageClock
from pgjq.storage.model import reads
from pgjq.storage.model.jobs import Jobs
from pgjq.storage.model.operations import ModelOperations
from pgjq.storage.model.subscribers import Subscribers
from pgjq.storage.workers import WorkerRecord

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.storage.base import Subscription
    from pgjq.storage.workers import Registration

R = TypeVar("R")


class MemoryWorkers:
    """The worker records, by their registrations."""

    def __init__(self) -> None:
        self._records: dict[str, WorkerRecord] = {}

    def seen(self, registration: Registration, now: datetime) -> None:
        """See `Registry`."""
        known = self._records.get(registration.id)
        self._records[registration.id] = WorkerRecord(registration, known.started_at if known else now, now)

    def stopped(self, registration: Registration) -> None:
        """See `Registry`."""
        self._records.pop(registration.id, None)

    def records(self) -> list[WorkerRecord]:
        """See `Registry`."""
        return list(self._records.values())

    def prune(self, now: datetime) -> None:
        """See `Registry`."""
        self._records = {key: record for key, record in self._records.items() if not record.is_old(now)}


class MemoryStorage:
    """Jobs in this process's memory.

    `clock` returns an aware datetime, for tests that move time. Moving a `pgjq.testing.ManualClock`, or another clock
    with such a method `subscribe`, wakes sleeping workers; any other function is read again every 0.1 s while a worker
    sleeps and a delayed job waits.
    """

    capabilities = Capabilities(
        durable=False,
        processes=False,
        machines=False,
        transactions=False,
        leader_election=False,
        definitions=True,
        notice="at once",
        clock="this process's, or `clock=`",
        url="`memory:`",
    )

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.jobs = Jobs()
        self.subscribers = Subscribers()
        self.clock = StorageClock(clock, self, lambda storage: storage.subscribers.wake())
        self.workers = MemoryWorkers()
        self._operations: dict[Mode, Operations] = {
            "sync": MemoryOperations(self, "sync"),
            "async": MemoryOperations(self, "async"),
        }

    def operations(self, mode: Mode) -> Operations:
        """Return the operations in one mode."""
        return self._operations[mode]

    def dedicated(self) -> Operations:
        """Return the blocking operations: there are no connections."""
        return self._operations["sync"]

    def close(self) -> None:
        """End every wait; the jobs are gone with the object."""
        with self.lock:
            self.closed = True
        self.subscribers.close()

    def do(self, verb: Callable[[Jobs], R]) -> R:
        """Do an operation under the lock, and notify subscribers in the order of operations."""
        with self.lock:
            if self.closed:
                raise storage_closed()
            jobs = self.jobs
            jobs.begin(self.clock.now(), recording=self.subscribers.listens)
            answer = verb(jobs)
            self.subscribers.publish(jobs)
            return answer


class MemoryOperations(ModelOperations):
    """The operations, in one mode; the modes differ only in how they wait."""

    def __init__(self, storage: MemoryStorage, mode: Mode) -> None:
        super().__init__("MemoryStorage", mode)
        self._storage = storage

    async def _do(self, verb: Callable[[Jobs], R]) -> R:
        return self._storage.do(verb)

    _do_unsynced = _do

    @property
    def _registry(self) -> MemoryWorkers:
        return self._storage.workers

    @property
    def _subscribers(self) -> Subscribers:
        return self._storage.subscribers

    @property
    def _clock(self) -> StorageClock:
        return self._storage.clock

    def _recheck_interval(self, poll: float) -> float:
        """Return infinity: notifications between threads do not get lost."""
        del poll
        return math.inf

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """Raise UnsupportedError: there is only this process."""
        del role, candidate, ttl
        raise UnsupportedError("MemoryStorage has no leader election: its jobs live in one process")

    async def leads(self, role: str, candidate: str) -> bool:
        """Raise UnsupportedError, as `elect` does."""
        return await self.elect(role, candidate, ttl=0)

    async def resign(self, role: str, candidate: str) -> None:
        """Raise UnsupportedError, as `elect` does."""
        await self.elect(role, candidate, ttl=0)

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        self._storage.do(reads.running)  # Raises if the storage is closed.
        return self._storage.subscribers.subscribe(queue, self._mode)

    async def close(self) -> None:
        """Do nothing: the operations hold no connections."""
