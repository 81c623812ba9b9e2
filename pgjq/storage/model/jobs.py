"""All jobs of a storage, with the indexes that the operations need.

Every change of a job goes through `add`, `change`, `moved` or `forget`, and of a queue through `define` or
`remove_queue`, which update the indexes and record the change. So a storage that publishes changes, or writes them to a
journal, misses none.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any

from pgjq.policy import Policy
from pgjq.storage.model.changes import NOTHING, Change, QueueChange, ended_by, events_of
from pgjq.storage.model.heap import Heap
from pgjq.storage.model.keys import Keys
from pgjq.storage.model.queue_record import QueueRecord
from pgjq.storage.model.schedule_records import ScheduleTable

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pgjq.job import Event, EventName, State
    from pgjq.storage.base import Lease
    from pgjq.storage.model.record import Record, SlotKey
    from pgjq.storage.model.schedule_records import ScheduleChange

WAITING = ("queued", "failing")
FILED_BY = {"state", "superseded", "run_at", "settings"}


class Jobs:
    """The jobs, as of `now`, the time of the current operation."""

    def __init__(self) -> None:
        self.now = datetime.min.replace(tzinfo=UTC)
        self.last_seq = 0
        self.records: dict[int, Record] = {}
        self.by_id: dict[tuple[str, str], Record] = {}
        self.processing: dict[int, Record] = {}
        self.queues: dict[str, QueueRecord] = {}
        self.slots: dict[SlotKey, Record] = {}  # The job that has each time slot.
        self.changes: list[Change] = []
        self.queue_changes: list[QueueChange] = []
        self.schedules = ScheduleTable()
        self.schedule_changes: list[ScheduleChange] = []
        self.awake: set[str] = set()  # Queues that got a claimable job.
        self.later: dict[str, datetime] = {}  # Queues that got a delayed job, and when the first is due.
        self._recording = True
        self._ready: dict[str, Heap[int]] = {}  # By queue: minus priority.
        self._waiting: dict[str, Heap[datetime]] = {}  # By queue: `run_at`.
        self._keys: dict[str, Keys] = {}  # Only of queues with a policy.

    def begin(self, now: datetime, *, recording: bool = True) -> None:
        """Start an operation; without subscribers its changes need not be recorded."""
        self.now = now
        self.changes = []
        self.queue_changes = []
        self.schedule_changes = []
        self.awake = set()
        self.later = {}
        self._recording = recording

    @property
    def has_changed(self) -> bool:
        """Whether the operation changed anything."""
        return bool(self.changes or self.queue_changes or self.schedule_changes)

    def events(self) -> Iterator[Event]:
        """Iterate over the events of the operation."""
        return events_of(self.changes, self.queue_changes, self.schedule_changes, self.now)

    def ended(self) -> Iterator[tuple[str, str]]:
        """Iterate over the queues and ids of the jobs that the operation ended or deleted."""
        return ended_by(self.changes)

    def add(self, record: Record, event: EventName | None = None) -> None:
        """Add a job."""
        self.last_seq = max(self.last_seq, record.seq)
        self.records[record.seq] = record
        if not record.superseded:
            self.by_id[record.queue, record.id] = record
        if record.queue not in self.queues:
            self.queues[record.queue] = QueueRecord(record.created_at)
        if record.slot is not None:
            self.slots[record.slot_key] = record
        self._file(record)
        if self._recording:
            self.changes.append(Change(record, NOTHING, event, None, added=True))

    def change(
        self,
        record: Record,
        event: EventName | None = None,
        facts: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> None:
        """Give a job new values."""
        if "slot" in fields:
            self._leave_slot(record)
        for name, value in fields.items():
            setattr(record, name, value)
        if not FILED_BY.isdisjoint(fields):
            self._file(record)
        if self._recording:
            self.changes.append(Change(record, fields, event, facts))

    def moved(self, record: Record, event: EventName, values: Sequence[str]) -> None:
        """Record that the caller has set a job's state, and which of its values are new.

        Claims and ends, which happen to every job, use this; a `change` takes three times as long.
        """
        self._file(record)
        if self._recording:
            self.changes.append(Change(record, {name: getattr(record, name) for name in values}, event))

    def forget(self, record: Record) -> None:
        """Remove a job, and its id unless that belongs to a newer job."""
        del self.records[record.seq]
        self.processing.pop(record.seq, None)
        if self.by_id.get((record.queue, record.id)) is record:
            del self.by_id[record.queue, record.id]
        self._leave_slot(record)
        keys = self._keys.get(record.queue)
        if keys is not None:
            keys.remove(record)
            self._make_next_claimable(keys, record)
        if self._recording:
            self.changes.append(Change(record, None))

    def _leave_slot(self, record: Record) -> None:
        if record.slot is not None and self.slots.get(record.slot_key) is record:
            del self.slots[record.slot_key]

    def define(
        self, name: str, known: QueueRecord, event: EventName | None = None, facts: Mapping[str, Any] | None = None
    ) -> None:
        """Set a queue's record."""
        before = self.queues.get(name)
        self.queues[name] = known
        if known.definition.policy != (before.definition.policy if before else Policy.STANDARD):
            self._keep_keys(name, Policy(known.definition.policy))
        if before is not None and before.paused and not known.paused:
            self.awake.add(name)
        if self._recording:
            self.queue_changes.append(QueueChange(name, known, event, facts))

    def _keep_keys(self, name: str, policy: Policy) -> None:
        """Index a queue's jobs by key, if it has a policy.

        The queue has jobs only if its definition was lost with a damaged line, and is defined again.
        """
        for index in (self._keys, self._ready, self._waiting):
            index.pop(name, None)
        if policy.limits_keys:
            self._keys[name] = Keys(policy)
        for record in self.of_queue(name):
            self._file(record)

    def remove_queue(self, name: str) -> None:
        """Remove a queue and all its jobs."""
        for record in self.of_queue(name):
            self.forget(record)
        self.queues.pop(name, None)
        for index in (self._keys, self._ready, self._waiting):
            index.pop(name, None)
        if self._recording:
            self.queue_changes.append(QueueChange(name, None))

    def set_schedule(self, change: ScheduleChange) -> None:
        """Set, replace or delete a schedule."""
        self.schedules.put(change)
        self.schedule_changes.append(change)

    def of_queue(self, name: str) -> list[Record]:
        """List the records of a queue in enqueue order."""
        return [record for record in self.records.values() if record.queue == name]

    def _file(self, record: Record) -> None:
        """Put a job where claims, promotion or reapers find it; its old entries become stale."""
        record.ready = False
        keys = self._keys.get(record.queue)
        if keys is not None:
            keys.file(record)
        if record.state == "processing":
            self.processing[record.seq] = record
        else:
            self.processing.pop(record.seq, None)
        if record.state in WAITING:
            if record.run_at <= self.now:
                self._make_ready(record)
                return
            self._put_off(record)
        if keys is not None:
            self._make_next_claimable(keys, record)

    def _make_ready(self, record: Record) -> None:
        record.ready = True
        keys = self._keys.get(record.queue)
        if keys is None or not keys.is_serial:
            self._push(record)
        else:
            keys.make_ready(record)
            self._make_next_claimable(keys, record)

    def _make_next_claimable(self, keys: Keys, record: Record) -> None:
        """Make the next job of a key claimable, after a change of one of its jobs."""
        if keys.is_serial and (first := keys.next_claimable(record.settings.singleton_key)) is not None:
            self._push(first)

    def _push(self, record: Record) -> None:
        heap = self._ready.get(record.queue)
        if heap is None:
            heap = self._ready[record.queue] = self._new_ready(record.queue)
        heap.push(-record.settings.priority, record.seq)
        self.awake.add(record.queue)

    def _put_off(self, record: Record) -> None:
        """Have a job promoted at its time, and record that the queue has a job due then."""
        queue, run_at = record.queue, record.run_at
        heap = self._waiting.get(queue)
        if heap is None:
            heap = self._waiting[queue] = Heap(self._find_waiting, self.records)
        heap.push(run_at, record.seq)
        if queue not in self.later or run_at < self.later[queue]:
            self.later[queue] = run_at

    def _new_ready(self, queue: str) -> Heap[int]:
        keys = self._keys.get(queue)
        return Heap(self._find_ready if keys is None else partial(self._find_next_of_key, keys), self.records)

    def _find_ready(self, rank: int, seq: int) -> Record | None:
        """Return the entry's job if it can be claimed; a requeued job has a newer entry."""
        record = self.records.get(seq)
        return record if record is not None and record.ready and record.settings.priority == -rank else None

    def _find_next_of_key(self, keys: Keys, rank: int, seq: int) -> Record | None:
        """Return the entry's job if it is next of its key; it gets another entry when it is again."""
        record = self._find_ready(rank, seq)
        return record if record is not None and keys.may_run(record) else None

    def _find_waiting(self, due: datetime, seq: int) -> Record | None:
        """Return the entry's job if it still waits for that time."""
        record = self.records.get(seq)
        if record is None or record.ready or record.run_at != due or record.state not in WAITING:
            return None
        return record

    def current(self, queue: str, job_id: str) -> Record | None:
        """Find the job that has an id now."""
        return self.by_id.get((queue, job_id))

    def policy(self, queue: str) -> Policy:
        """Return a queue's policy."""
        keys = self._keys.get(queue)
        return Policy.STANDARD if keys is None else keys.policy

    def keys(self, queue: str) -> Keys | None:
        """Return the keys of a queue with a policy."""
        return self._keys.get(queue)

    def others(self, record: Record) -> list[State]:
        """Return the states of the other jobs of a job's key, as far as the policy counts them."""
        keys = self._keys.get(record.queue)
        return [] if keys is None else keys.others(record)

    def held(self, lease: Lease) -> Record | None:
        """Find the job that a lease still holds."""
        record = self.processing.get(lease.key)
        return record if record is not None and record.lease == lease.number else None

    def promote(self, queue: str) -> None:
        """Make the due jobs of a queue claimable."""
        heap = self._waiting.get(queue)
        while heap is not None and (record := heap.first()) is not None and record.run_at <= self.now:
            self._make_ready(record)

    def is_open(self, queue: str) -> bool:
        """Return whether a queue exists and is not paused."""
        known = self.queues.get(queue)
        return known is not None and not known.paused

    def claimable(self, queue: str) -> Heap[int] | None:
        """Return the claimable jobs of a queue; None if claims skip the queue."""
        self.promote(queue)
        return self._ready.get(queue) if self.is_open(queue) else None

    def next_due(self, queues: Sequence[str]) -> datetime | None:
        """Return when the queues have a job to claim: `now` if they have one, None without any."""
        moments = [due for queue in queues if (due := self._due(queue)) is not None]
        return min(moments, default=None)

    def _due(self, queue: str) -> datetime | None:
        ready, waiting = self.claimable(queue), self._waiting.get(queue)
        if ready is not None and ready.first() is not None:
            return self.now
        first = None if waiting is None or not self.is_open(queue) else waiting.first()
        return None if first is None else first.run_at
