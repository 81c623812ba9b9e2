"""Memory: a storage inside one process, and the model that the others are tested against.

Everything is under one lock, so every operation is atomic, and each is written to be read: this is the contract of
`pgjq.storage.base` in its plainest form. Threads and event loops of one process may share it. Nothing survives the
process, and there is nobody to elect a leader among.
"""

from __future__ import annotations

import heapq
import random
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, assert_never

from pgjq.errors import StorageError, UnsupportedError
from pgjq.job import LIVE, CancelResult, EnqueueResult, Event, JobError, JobStatus, QueueStats, WorkerInfo
from pgjq.lease import Stall, explain, judge
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS, RETENTION_SECONDS
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.retry import retry_delay
from pgjq.storage.base import Answer, Claimed, Lease, Operations, Promises, Pulse, Reaped, Settled
from pgjq.storage.expectation import MailExpectation
from pgjq.storage.mailbox import Mailbox, MailSubscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager

    from pgjq.blocking import Colour
    from pgjq.job import EventName, State
    from pgjq.lease import LeasePolicy
    from pgjq.options import JobFilter, Settings, Submission
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Effects, Settlement, Subscription

WORKER_LAPSES = timedelta(seconds=60)
STALLED_ON = 20


@dataclass(slots=True, eq=False)
class _Record:
    """A job, from its enqueueing until it is pruned."""

    seq: int
    queue: str
    id: str
    payload: bytes
    settings: Settings
    created_at: datetime
    run_at: datetime
    state: State = "queued"
    ready: bool = False
    attempts: int = 0
    lease: int = 0
    stalled: int = 0
    cancel_requested: bool = False
    policy: LeasePolicy | None = None
    worker: str | None = None
    started_at: datetime | None = None
    locked_until: datetime | None = None
    expire_at: datetime | None = None
    finished_at: datetime | None = None
    checkpoint: bytes | None = None
    result: bytes | None = None
    error: JobError | None = None
    stalled_on: tuple[str, ...] = ()

    @property
    def max_attempts(self) -> int:
        return self.settings.max_attempts or MAX_ATTEMPTS

    @property
    def lease_seconds(self) -> float | None:
        own = self.settings.options.heartbeat_seconds
        return own if own is not None else self.policy.lease if self.policy else None

    @property
    def expire_seconds(self) -> float | None:
        own = self.settings.options.expire_in_seconds
        return own if own is not None else self.policy.expire if self.policy else None

    @property
    def expires_at(self) -> datetime | None:
        return _later(self.finished_at, self.settings.result_ttl)

    @property
    def prune_at(self) -> datetime | None:
        options = self.settings.options
        if self.state in LIVE:
            retention = options.retention_seconds
            waits_since = max(self.created_at, self.run_at)
            return _later(waits_since, RETENTION_SECONDS if retention is None else retention)
        keep = options.delete_after_seconds
        keep = DELETE_AFTER_SECONDS if keep is None else keep
        return _later(self.finished_at, keep) if keep else None


class MemoryStorage:
    """Jobs in this process's memory. `clock` returns an aware datetime, for tests that move time."""

    promises = Promises(durable=False, processes=False, machines=False, transactions=False, leader_election=False)

    def __init__(self, *, clock: Callable[[], datetime] | None = None) -> None:
        self.clock = clock or _now
        self.lock = threading.RLock()
        self.closed = False
        self.last_seq = 0
        self.records: dict[int, _Record] = {}
        self.by_id: dict[tuple[str, str], _Record] = {}
        self.ready: dict[str, list[tuple[int, int]]] = defaultdict(list)
        self.waiting: list[tuple[datetime, int]] = []
        self.processing: dict[int, _Record] = {}
        self.seen: dict[str, WorkerInfo] = {}
        self.subscribers: list[tuple[str | None, Mailbox[Event]]] = []
        self.sleepers: dict[str, list[Mailbox[None]]] = defaultdict(list)
        self.expected: dict[tuple[str, str], list[Mailbox[None]]] = defaultdict(list)
        self._operations: dict[Colour, Operations] = {
            "blocking": MemoryOperations(self, "blocking"),
            "async": MemoryOperations(self, "async"),
        }

    def operations(self, colour: Colour) -> Operations:
        """Return the operations in one colour."""
        return self._operations[colour]

    def reserved(self) -> Operations:
        """Return the blocking operations: there are no connections."""
        return self._operations["blocking"]

    def close(self) -> None:
        """End every wait; what is stored is gone with the object."""
        with self.lock:
            self.closed = True
            boxes: list[Mailbox[Any]] = [box for _, box in self.subscribers]
            for waiting in (self.sleepers, self.expected):
                boxes += [box for those in waiting.values() for box in those]
        for box in boxes:
            box.close()

    def current(self, queue: str, job_id: str) -> _Record | None:
        """Find the job that an id means now."""
        return self.by_id.get((queue, job_id))

    def held(self, lease: Lease) -> _Record | None:
        """Find the job that a lease still holds."""
        record = self.processing.get(lease.key)
        return record if record is not None and record.lease == lease.number else None

    def place(self, record: _Record, run_at: datetime) -> None:
        """Put a job where claims, or promotion, will find it."""
        record.run_at = run_at
        record.ready = run_at <= self.clock()
        if record.ready:
            heapq.heappush(self.ready[record.queue], (-record.settings.priority, record.seq))
            for box in self.sleepers[record.queue]:
                box.put(None)
        else:
            heapq.heappush(self.waiting, (run_at, record.seq))

    def promote(self) -> None:
        """Make jobs claimable whose time has come."""
        now = self.clock()
        while self.waiting and self.waiting[0][0] <= now:
            due, seq = heapq.heappop(self.waiting)
            record = self.records.get(seq)
            if record and record.state in ("queued", "failing") and not record.ready and record.run_at == due:
                self.place(record, due)

    def pop_ready(self, queue: str) -> _Record | None:
        """Take the first claimable job of a queue; entries of jobs that were cancelled since are passed over."""
        heap = self.ready[queue]
        while heap:
            record = self.records.get(heapq.heappop(heap)[1])
            if record is not None and record.ready:
                return record
        return None

    def give_back(self, record: _Record, state: State, delay: float) -> None:
        """End a run, but not the job."""
        self.processing.pop(record.seq, None)
        record.state, record.worker, record.locked_until, record.expire_at = state, None, None, None
        self.place(record, self.clock() + timedelta(seconds=delay))

    def end(self, record: _Record, state: State, result: bytes | None = None, error: JobError | None = None) -> None:
        """End a job."""
        self.processing.pop(record.seq, None)
        record.state, record.ready, record.locked_until, record.expire_at = state, False, None, None
        record.finished_at, record.result, record.error = self.clock(), result, error
        self.answer(record)

    def forget(self, record: _Record) -> None:
        """Remove a job and, if it is still its own, its id."""
        del self.records[record.seq]
        if self.by_id.get((record.queue, record.id)) is record:
            del self.by_id[record.queue, record.id]
        self.answer(record)

    def answer(self, record: _Record) -> None:
        """Tell those who wait for a job that it has ended, or is gone."""
        for box in self.expected.get((record.queue, record.id), ()):
            box.put(None)

    def tell(self, name: EventName, record: _Record, **facts: Any) -> None:
        """Tell subscribers of something that happened to a job."""
        if self.subscribers:
            event = Event(name, record.queue, record.id, self.clock(), attempts=record.attempts, **facts)
            for queue, box in self.subscribers:
                if queue in (None, record.queue):
                    box.put(event)


class MemoryOperations:
    """The operations, in one colour: they differ only in how one waits."""

    def __init__(self, storage: MemoryStorage, colour: Colour) -> None:
        self.storage = storage
        self._colour: Colour = colour

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, made_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """See `Operations`; made ids are looked up like others."""
        del made_ids
        if connection is not None:
            message = "MemoryStorage has no transactions; enqueue without connection=, or use PostgresStorage"
            raise UnsupportedError(message)
        with self.opened() as storage:
            return [self._enqueue(storage, queue, job) for job in jobs]

    def _enqueue(self, storage: MemoryStorage, queue: str, job: Submission) -> EnqueueResult:
        now = storage.clock()
        taken = storage.current(queue, job.id)
        if taken is not None:
            fresh = taken.expires_at is not None and taken.expires_at > now
            if taken.state == "completed" and fresh:
                return EnqueueResult("completed", job.id, "completed", taken.result)
            if taken.state in LIVE or (taken.state == "failed" and fresh and job.settings.on_failed == "duplicate"):
                return EnqueueResult("duplicate", job.id, taken.state)
        storage.last_seq += 1
        run_at = job.settings.run_at or now + timedelta(seconds=job.settings.delay)
        record = _Record(storage.last_seq, queue, job.id, job.payload, job.settings, now, run_at)
        storage.records[record.seq] = storage.by_id[queue, job.id] = record
        storage.place(record, run_at)
        storage.tell("queued", record)
        return EnqueueResult("queued", job.id)

    async def claim(self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy) -> list[Claimed]:
        """See `Operations`."""
        with self.opened() as storage:
            self._see(worker, queues)
            storage.promote()
            taken: list[Claimed] = []
            for queue in queues:
                while len(taken) < limit and (record := storage.pop_ready(queue)) is not None:
                    taken.append(self._claim(storage, record, worker, policy))
            return taken

    def _claim(self, storage: MemoryStorage, record: _Record, worker: str, policy: LeasePolicy) -> Claimed:
        now = storage.clock()
        record.state, record.ready, record.worker, record.policy, record.started_at = (
            "processing",
            False,
            worker,
            policy,
            now,
        )
        record.lease += 1
        record.attempts += 1
        record.expire_at = _later(now, record.expire_seconds)
        record.locked_until = _earlier(_later(now, record.lease_seconds), record.expire_at)
        storage.processing[record.seq] = record
        storage.tell("processing", record)
        return Claimed(
            Lease(record.queue, record.id, record.lease, record.seq),
            record.payload,
            record.attempts,
            record.max_attempts,
            record.created_at,
            record.lease_seconds,
            record.expire_seconds,
            record.checkpoint,
            record.settings.options,
        )

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        with self.opened() as storage:
            return [Settled(s.lease, self._settle(storage, s.lease, s.outcome)) for s in settlements]

    def _settle(self, storage: MemoryStorage, lease: Lease, outcome: Outcome) -> State | None:
        record = storage.held(lease)
        if record is None:
            return None
        match Cancelled() if record.cancel_requested else outcome:
            case Completed(result):
                storage.end(record, "completed", result=result)
            case Failed(error):
                storage.end(record, "failed", error=error)
            case Cancelled():
                storage.end(record, "cancelled")
            case Failing(error, delay):
                record.error = error
                storage.give_back(record, "failing", delay)
            case Released():
                self._refund(storage, record, 0.0)
            case Snoozed(delay):
                self._refund(storage, record, delay)
            case _ as never:
                assert_never(never)
        # Given back without an attempt counted, a job is in the state that it was claimed from.
        storage.tell(record.state, record)  # pyright: ignore[reportArgumentType]
        return record.state

    def _refund(self, storage: MemoryStorage, record: _Record, delay: float) -> None:
        record.attempts -= 1
        storage.give_back(record, "failing" if record.attempts else "queued", delay)

    async def heartbeat(self, leases: Sequence[Lease], *, worker: str) -> Pulse:
        """See `Operations`."""
        with self.opened() as storage:
            self._see(worker, ())
            held = [(lease, storage.held(lease)) for lease in leases]
            for _, record in held:
                if record is not None:
                    renewed = _later(storage.clock(), record.lease_seconds)
                    record.locked_until = _earlier(renewed, record.expire_at)
            return Pulse(
                lost=[lease for lease, record in held if record is None],
                cancel_requested=[lease for lease, record in held if record is not None and record.cancel_requested],
            )

    def effects(
        self, lease: Lease, session_factory: Callable[[], Any] | None = None
    ) -> AbstractAsyncContextManager[Effects]:
        """Refuse: there is nothing to commit together with."""
        del session_factory
        raise UnsupportedError(f"MemoryStorage has no transactions; complete job {lease.id!r} by returning its result")

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """See `Operations`."""
        with self.opened() as storage:
            record = storage.held(lease)
            if record is None:
                return False
            record.checkpoint = checkpoint
            return True

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """See `Operations`."""
        with self.opened() as storage:
            now = storage.clock()
            patience = timedelta(seconds=stale_age)
            late = [r for r in storage.processing.values() if _is_late(r, now, patience)]
            late.sort(key=lambda r: (r.locked_until, r.seq))
            return [self._reap(storage, record, now) for record in late[:limit]]

    def _reap(self, storage: MemoryStorage, record: _Record, now: datetime) -> Reaped:
        policy = record.policy
        action = judge(
            Stall(
                record.cancel_requested,
                record.attempts,
                record.max_attempts,
                record.stalled,
                policy.max_stalled if policy else None,
                policy.reap_exhausted if policy else "fail",
            )
        )
        reason = "expired" if record.expire_at is not None and record.expire_at <= now else "lease"
        worker = record.worker or "?"
        if action == "cancelled":
            storage.end(record, "cancelled")
        else:
            self._note_stall(record, explain(reason, worker), worker)
            if action == "failed":
                storage.end(record, "failed", error=record.error)
            else:
                delay = retry_delay(record.settings.options, record.attempts, random.random())  # noqa: S311
                storage.give_back(record, "failing", delay)
        storage.tell("stalled", record, count=record.stalled, action=action, reason=reason)
        storage.tell("failing" if action == "recovered" else action, record)
        return Reaped(
            record.queue,
            record.id,
            record.stalled,
            record.attempts,
            record.max_attempts,
            action,
            reason,
            worker,
            record.payload if action == "failed" else None,
        )

    def _note_stall(self, record: _Record, error: JobError, worker: str) -> None:
        record.stalled += 1
        record.error = error
        record.stalled_on = (*record.stalled_on, worker)[-STALLED_ON:]

    async def next_deadline(self) -> float | None:
        """See `Operations`."""
        with self.opened() as storage:
            deadlines = [r.locked_until for r in storage.processing.values() if r.locked_until is not None]
            return (min(deadlines) - storage.clock()).total_seconds() if deadlines else None

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """See `Operations`."""
        with self.opened() as storage:
            record = storage.current(queue, job_id)
            if record is None:
                return CancelResult("not_found")
            if record.state == "processing":
                record.cancel_requested = record.cancel_requested or active
                return CancelResult("processing")
            if record.state in ("queued", "failing"):
                storage.end(record, "cancelled")
                storage.tell("cancelled", record)
                return CancelResult("cancelled")
            return CancelResult(record.state)

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Operations`."""
        with self.opened() as storage:
            record = storage.current(queue, job_id)
            if record is not None and record.state in ("failed", "cancelled"):
                record.state, record.attempts, record.stalled, record.finished_at = "queued", 0, 0, None
                record.cancel_requested, record.error = False, None
                record.started_at = record.worker = None
                record.stalled_on = ()
                storage.place(record, storage.clock())
                storage.tell("queued", record)
            return None if record is None else self.status(record)

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        with self.opened() as storage:
            found = [storage.current(queue, job_id) for job_id in set(job_ids)]
            doomed = [r for r in found if r is not None and r.state != "processing"]
            for record in doomed:
                storage.forget(record)
            return len(doomed)

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Operations`."""
        with self.opened() as storage:
            found = ((job_id, storage.current(queue, job_id)) for job_id in job_ids)
            return {job_id: self.status(record) for job_id, record in found if record is not None}

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """See `Operations`."""
        with self.opened() as storage:
            found = [r for r in storage.records.values() if r.seq > wanted.after and self._matches(r, wanted)]
            page = found[: wanted.limit]
            return [self.status(r) for r in page], page[-1].seq if len(page) == wanted.limit else None

    def _matches(self, record: _Record, wanted: JobFilter) -> bool:
        return (
            self.storage.current(record.queue, record.id) is record
            and wanted.queue in (None, record.queue)
            and wanted.state in (None, record.state)
            and wanted.singleton_key in (None, record.settings.singleton_key)
            and (wanted.created_before is None or record.created_at < wanted.created_before)
            and (wanted.created_after is None or record.created_at >= wanted.created_after)
        )

    async def stats(self, queue: str) -> QueueStats:
        """See `Operations`."""
        with self.opened() as storage:
            now = storage.clock()
            mine = [r for (name, _), r in storage.by_id.items() if name == queue]
            states = Counter(r.state for r in mine)
            deferred = sum(r.state == "queued" and r.run_at > now for r in mine)
            due = [r.run_at for r in mine if r.state in ("queued", "failing") and r.run_at <= now]
            return QueueStats(
                name=queue,
                queued=states["queued"],
                deferred=deferred,
                ready=states["queued"] - deferred,
                processing=states["processing"],
                failing=states["failing"],
                completed=states["completed"],
                failed=states["failed"],
                cancelled=states["cancelled"],
                total=len(mine),
                oldest_ready_age=(now - min(due)).total_seconds() if due else None,
            )

    async def workers(self) -> list[WorkerInfo]:
        """See `Operations`."""
        with self.opened() as storage:
            running = Counter(r.worker for r in storage.processing.values())
            lately = storage.clock() - WORKER_LAPSES
            infos = [w for w in storage.seen.values() if w.last_seen > lately]
            return [WorkerInfo(w.id, w.queues, w.started_at, w.last_seen, running[w.id]) for w in infos]

    async def prune(self, *, limit: int = 1000) -> int:
        """See `Operations`."""
        with self.opened() as storage:
            now = storage.clock()
            doomed = [r for r in storage.records.values() if self._is_prunable(r, now)][:limit]
            for record in doomed:
                storage.forget(record)
            return len(doomed)

    def _is_prunable(self, record: _Record, now: datetime) -> bool:
        """A record stays as long as its result can be read, unless its id is free all the same."""
        if record.state == "processing" or record.prune_at is None or record.prune_at > now:
            return False
        readable = record.expires_at is not None and record.expires_at > now
        return (
            record.state == "cancelled" or not readable or self.storage.current(record.queue, record.id) is not record
        )

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """Refuse: there is only this process."""
        message = f"MemoryStorage has no leaders: {candidate!r} is alone, and needs no {role!r} elected for {ttl:g} s"
        raise UnsupportedError(message)

    async def leads(self, role: str, candidate: str) -> bool:
        """Refuse, as `elect` does."""
        return await self.elect(role, candidate, ttl=0)

    async def resign(self, role: str, candidate: str) -> None:
        """Refuse, as `elect` does."""
        await self.elect(role, candidate, ttl=0)

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        box: Mailbox[Event] = Mailbox(self._colour)
        with self.opened() as storage:
            storage.subscribers.append((queue, box))
        return MailSubscription(box, lambda: self._unsubscribe(box))

    def _unsubscribe(self, box: Mailbox[Event]) -> None:
        with self.storage.lock:
            self.storage.subscribers = [(queue, b) for queue, b in self.storage.subscribers if b is not box]

    async def expect(self, queue: str, job_id: str) -> MemoryExpectation:
        """See `Operations`."""
        box: Mailbox[None] = Mailbox(self._colour)
        with self.opened() as storage:
            storage.expected[queue, job_id].append(box)
        return MemoryExpectation(self, box, queue, job_id)

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`; nothing is lost between two threads, so nobody polls."""
        del poll
        box: Mailbox[None] = Mailbox(self._colour)
        with self.opened() as storage:
            for queue in queues:
                storage.sleepers[queue].append(box)
        try:
            return await self._sleep(queues, box, time.monotonic() + timeout)
        finally:
            with self.storage.lock:
                for queue in queues:
                    self.storage.sleepers[queue].remove(box)

    async def _sleep(self, queues: Sequence[str], box: Mailbox[None], until: float) -> bool:
        while True:
            with self.opened() as storage:
                storage.promote()
                if any(record.ready for queue in queues for record in self._heads(queue)):
                    return True
                due = (storage.waiting[0][0] - storage.clock()).total_seconds() if storage.waiting else None
            left = until - time.monotonic()
            if left <= 0:
                return False
            if await box.take(left if due is None else min(left, max(due, 0.0))):
                return True

    def _heads(self, queue: str) -> Iterable[_Record]:
        return (r for _, seq in self.storage.ready[queue] if (r := self.storage.records.get(seq)) is not None)

    async def close(self) -> None:
        """Hold nothing, close nothing."""

    def opened(self) -> _Opened:
        """Lock the storage, if it has not been closed."""
        return _Opened(self.storage)

    def _see(self, worker: str, queues: Sequence[str]) -> None:
        now = self.storage.clock()
        known = self.storage.seen.get(worker)
        started = known.started_at if known else now
        served = tuple(queues) or (known.queues if known else ())
        self.storage.seen[worker] = WorkerInfo(worker, served, started, now, 0)

    def status(self, record: _Record) -> JobStatus:
        """Tell everything about a job."""
        ended = record.state not in LIVE
        readable = not ended or (record.expires_at is not None and record.expires_at > self.storage.clock())
        return JobStatus(
            id=record.id,
            queue=record.queue,
            state=record.state,
            created_at=record.created_at,
            attempts=record.attempts,
            max_attempts=record.max_attempts,
            result=record.result if readable else None,
            error=record.error if readable else None,
            priority=record.settings.priority,
            run_at=None if ended else record.run_at,
            started_at=record.started_at,
            finished_at=record.finished_at,
            locked_until=record.locked_until,
            worker=record.worker,
            lease=record.lease,
            stalled=record.stalled,
            singleton_key=record.settings.singleton_key,
            stalled_on=record.stalled_on,
        )


class MemoryExpectation(MailExpectation):
    """One caller's wait for one job, which is known by its record."""

    def __init__(self, operations: MemoryOperations, box: Mailbox[None], queue: str, job_id: str) -> None:
        super().__init__(box)
        self._operations = operations
        self._queue = queue
        self._id = job_id
        self._record: _Record | None = None

    async def enqueue(self, job: Submission, *, made_id: bool = False) -> EnqueueResult:
        """Enqueue, and remember which job that was."""
        with self._operations.opened() as storage:
            (result,) = await self._operations.enqueue(self._queue, [job], made_ids=made_id)
            self._record = storage.current(self._queue, self._id)
            self._is_new = result.status == "queued"
            return result

    async def close(self) -> None:
        """Stop waiting."""
        with self._operations.storage.lock:
            boxes = self._operations.storage.expected[self._queue, self._id]
            if self._box in boxes:
                boxes.remove(self._box)
            if not boxes:
                del self._operations.storage.expected[self._queue, self._id]
        self._box.close()

    async def _look(self) -> Answer | None:
        with self._operations.opened() as storage:
            record = self._record
            if record is None or record.seq not in storage.records:
                return None
            status = self._operations.status(record)
            expired = record.expires_at is not None and record.expires_at <= storage.clock()
            return Answer(status.state, status.attempts, status.max_attempts, status.result, status.error, expired)


class _Opened:
    """The storage under its lock, if it has not been closed."""

    def __init__(self, storage: MemoryStorage) -> None:
        self._storage = storage

    def __enter__(self) -> MemoryStorage:
        self._storage.lock.acquire()
        if self._storage.closed:
            self._storage.lock.release()
            message = "this storage has been closed"
            raise StorageError(message)
        return self._storage

    def __exit__(self, *exc: object) -> None:
        self._storage.lock.release()


def _now() -> datetime:
    return datetime.now(UTC)


def _later(start: datetime | None, seconds: float | None) -> datetime | None:
    return None if start is None or seconds is None else start + timedelta(seconds=seconds)


def _earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    return min((t for t in (one, other) if t is not None), default=None)


def _is_late(record: _Record, now: datetime, patience: timedelta) -> bool:
    if record.locked_until is None or record.locked_until > now:
        return False
    return record.locked_until <= now - patience or (record.expire_at is not None and record.expire_at <= now)
