"""All the jobs of a storage, filed so that each question finds its answer.

Every change of a job goes through `add`, `change` and `forget`, which keep the files in order and note what happened.
So a storage that tells others of changes, or writes them down to make them again later, misses none.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pgjq.job import LIVE, Event

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pgjq.job import EventName
    from pgjq.storage.base import Lease
    from pgjq.storage.model.record import Record

WAITING = ("queued", "failing")


class Change(NamedTuple):
    """What happened to a job: `fields` are new values, all of them for a job that was added, None if it is gone."""

    record: Record
    fields: Mapping[str, Any] | None
    event: EventName | None = None
    facts: Mapping[str, Any] | None = None
    added: bool = False


NOTHING: Mapping[str, Any] = {}


class Jobs:
    """The jobs, as of `now`, the moment of the operation that is under way."""

    def __init__(self) -> None:
        self.now = datetime.min.replace(tzinfo=UTC)
        self.last_seq = 0
        self.records: dict[int, Record] = {}
        self.by_id: dict[tuple[str, str], Record] = {}
        self.processing: dict[int, Record] = {}
        self.changes: list[Change] = []
        self.awake: set[str] = set()  # Queues that got something to claim.
        self._noting = True
        self._ready: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self._waiting: list[tuple[datetime, int]] = []

    def begin(self, now: datetime, *, noting: bool = True) -> None:
        """Start an operation; without anybody who wants to know its changes, they need not be noted."""
        self.now = now
        self.changes = []
        self.awake = set()
        self._noting = noting

    def events(self) -> Iterator[Event]:
        """Tell what the operation did."""
        for record, _, name, facts, _ in self.changes:
            if name is not None:
                yield Event(name, record.queue, record.id, self.now, attempts=record.attempts, **(facts or NOTHING))

    def ended(self) -> Iterator[tuple[str, str]]:
        """Name the jobs that the operation ended or forgot."""
        for record, values, *_ in self.changes:
            if values is None or ("state" in values and record.state not in LIVE):
                yield record.queue, record.id

    def add(self, record: Record, event: EventName | None = None) -> None:
        """Take a job in."""
        self.last_seq = max(self.last_seq, record.seq)
        self.records[record.seq] = record
        if not record.superseded:
            self.by_id[record.queue, record.id] = record
        self._file(record)
        if self._noting:
            self.changes.append(Change(record, NOTHING, event, None, added=True))

    def change(
        self,
        record: Record,
        event: EventName | None = None,
        facts: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Give a job new values."""
        for name, value in fields.items():
            setattr(record, name, value)
        if "state" in fields:
            self._file(record)
        if self._noting:
            self.changes.append(Change(record, fields, event, facts))

    def forget(self, record: Record) -> None:
        """Remove a job and, if it is still its own, its id."""
        del self.records[record.seq]
        self.processing.pop(record.seq, None)
        if self.by_id.get((record.queue, record.id)) is record:
            del self.by_id[record.queue, record.id]
        if self._noting:
            self.changes.append(Change(record, None))

    def _file(self, record: Record) -> None:
        """Put a job where claims, promotion or reapers will find it. What is left elsewhere is passed over there."""
        record.ready = False
        if record.state == "processing":
            self.processing[record.seq] = record
            return
        self.processing.pop(record.seq, None)
        if record.state not in WAITING:
            return
        if record.run_at <= self.now:
            self._make_ready(record)
        else:
            heapq.heappush(self._waiting, (record.run_at, record.seq))

    def _make_ready(self, record: Record) -> None:
        record.ready = True
        heapq.heappush(self._ready[record.queue], (-record.settings.priority, record.seq))
        self.awake.add(record.queue)

    def current(self, queue: str, job_id: str) -> Record | None:
        """Find the job that an id means now."""
        return self.by_id.get((queue, job_id))

    def held(self, lease: Lease) -> Record | None:
        """Find the job that a lease still holds."""
        record = self.processing.get(lease.key)
        return record if record is not None and record.lease == lease.number else None

    def promote(self) -> None:
        """Make jobs claimable whose time has come."""
        while self._waiting and self._waiting[0][0] <= self.now:
            due, seq = heapq.heappop(self._waiting)
            record = self.records.get(seq)
            if record and record.state in WAITING and not record.ready and record.run_at == due:
                self._make_ready(record)

    def first(self, queue: str) -> Record | None:
        """Look at the first claimable job of a queue; entries of jobs that were cancelled since are thrown away."""
        heap = self._ready[queue]
        while heap:
            record = self.records.get(heap[0][1])
            if record is not None and record.ready:
                return record
            heapq.heappop(heap)
        return None

    def peek(self, queues: Sequence[str]) -> float | None:
        """Tell in how many seconds one of the queues may have a job to claim; 0 is now, None is not as it looks."""
        self.promote()
        if any(self.first(queue) is not None for queue in queues):
            return 0.0
        return (self._waiting[0][0] - self.now).total_seconds() if self._waiting else None
