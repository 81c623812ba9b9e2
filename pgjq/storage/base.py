"""The storage interface: what pgjq requires of a storage.

Its units are operations, not queries, and most take batches. Three rules hold for every storage:

* **One clock.** Every deadline is set and compared by the storage's own clock, never by a caller's.
* **Fencing.** Each claim raises the job's lease number. Every write that ends or extends a run names the lease it
  holds; a write under an old lease changes nothing and is reported back.
* **Atomic operations.** An operation takes effect as a whole or not at all; any number of callers may make the same
  one at once.

Users construct and share a `Storage`. It returns `Operations` in two modes from one source: coroutines that await, or
coroutines that block the thread and never suspend (`pgjq.blocking`). `pgjq.testing.StorageConformance` is this
contract as a test suite, also for storages of other projects.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from pgjq.options import NO_OPTIONS, JobOptions
from pgjq.outcome import may_have_led_to

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.definition import Definition
    from pgjq.job import (
        Action,
        CancelResult,
        EnqueueResult,
        Event,
        JobError,
        JobStatus,
        QueueInfo,
        QueueStats,
        Reason,
        State,
        WarningReason,
        WorkerInfo,
    )
    from pgjq.lease import LeasePolicy
    from pgjq.options import Headers, JobFilter, Submission
    from pgjq.outcome import Outcome
    from pgjq.storage.workers import Registration


def _meaning(text: str) -> dict[str, str]:
    return {"means": text}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a storage supports. The table in `docs/storages.md` is made from these fields."""

    durable: bool | str = field(metadata=_meaning("an accepted job survives the process, and the machine's crash"))
    processes: bool = field(metadata=_meaning("several processes share the jobs"))
    machines: bool = field(metadata=_meaning("so do several machines"))
    transactions: bool = field(
        metadata=_meaning("`connection=` enqueues in the caller's transaction, `job.transaction()` completes in one")
    )
    leader_election: bool = field(metadata=_meaning("`elect` and `resign` work"))
    definitions: bool = field(
        default=False,
        metadata=_meaning("queues have definitions: policies such as `singleton`, dead letters, retention"),
    )
    order: str = field(
        default="priority, then enqueueing", metadata=_meaning("in which order due jobs of a queue are claimed")
    )
    notice: str = field(default="", metadata=_meaning("how soon an idle worker learns of a job"))
    clock: str = field(default="", metadata=_meaning("what every deadline is set and compared by"))
    url: str = field(default="", metadata=_meaning("for `open_storage`"))


class Lease(NamedTuple):
    """The right to end one run of one job. `key` is the storage's internal key of the job."""

    queue: str
    id: str
    number: int
    key: Any


class Claimed(NamedTuple):
    """A job that a worker has claimed."""

    lease: Lease
    payload: bytes
    attempts: int
    max_attempts: int
    created_at: datetime
    lease_seconds: float | None
    expire_seconds: float | None
    checkpoint: bytes | None = None
    options: JobOptions = NO_OPTIONS
    task: str | None = None
    headers: Headers | None = None


class Settlement(NamedTuple):
    """The outcome of a run, and the lease it was claimed with."""

    lease: Lease
    outcome: Outcome


class Settled(NamedTuple):
    """The state that a settlement led to; None if the lease was lost.

    It is `cancelled` if a cancellation was requested before, whatever the outcome.
    """

    lease: Lease
    state: State | None


def made(settlement: Settlement, state: State | None, same_error: bool) -> Settled:  # noqa: FBT001
    """Return one result of `find_settled`; `state` is the job's after the run, None if unknown."""
    known = state is not None and may_have_led_to(settlement.outcome, state, same_error=same_error)
    return Settled(settlement.lease, state if known else None)


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of a heartbeat. A lease that is neither lost nor skipped was renewed.

    A skipped lease is held, but was not renewed: another transaction has locked its job. The caller tries again soon.
    """

    lost: list[Lease]
    cancel_requested: list[Lease]
    skipped: Sequence[Lease] = ()


@dataclass(frozen=True, slots=True)
class Reaped:
    """A stalled job, and what the reaper did with it. A failed one has its `payload`."""

    queue: str
    id: str
    count: int
    attempts: int
    max_attempts: int
    action: Action
    reason: Reason
    worker: str
    payload: bytes | None = None
    task: str | None = None


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """A queue that has grown past the warning size of its definition."""

    queue: str
    count: int
    size: int


class JobTransaction(Protocol):
    """An open transaction. Leaving its block without `complete` rolls it back."""

    @property
    def connection(self) -> Any:
        """The connection for the handler's writes."""
        ...

    async def complete(self, result: bytes | None) -> None:
        """Complete the job inside the transaction; LeaseLostError if the lease is gone."""
        ...


class Subscription(Protocol):
    """A bounded stream of events: a slow reader loses the oldest, and `dropped` counts them."""

    @property
    def dropped(self) -> int:
        """How many events were lost because the reader was too slow."""
        ...

    async def next(self, timeout: float) -> list[Event]:
        """Wait up to `timeout` seconds for events; an empty list if none came."""
        ...

    async def close(self) -> None:
        """Stop listening."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Iterate over the events until the subscription is closed."""
        ...


class Answer(NamedTuple):
    """A job's state and, if it has ended, its result or error while they can be read."""

    state: State
    attempts: int
    max_attempts: int
    result: bytes | None = None
    error: JobError | None = None
    expired: bool = False


class ResultWaiter(Protocol):
    """Waits for one job, for one caller.

    It is made before the job is enqueued, so that no notification is missed. It then waits for the job that `enqueue`
    added or found, even if its id gets a new job: after a cancel and a new enqueue, the result is `cancelled`. If it
    can, a storage sends notifications only for jobs that have a waiter.
    """

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue the job, or join it if it exists; return what `Operations.enqueue` returns."""
        ...

    async def join(self) -> bool:
        """Join the job that has this id now, without enqueueing one; return whether there is one."""
        ...

    async def answer(self, timeout: float) -> Answer | None:
        """Wait until the job has ended, at most `timeout` seconds, and return its state.

        None: the job was deleted or pruned. `expired`: its result or error can no longer be read. StorageError if the
        storage is closed meanwhile.
        """
        ...

    async def close(self) -> None:
        """Stop waiting. The job goes on."""
        ...


class Operations(Protocol):
    """The operations, in one mode."""

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, generated_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """Add the jobs whose ids are free; return one result per job, in order.

        After an error no job was added. `generated_ids`: pgjq has just generated every id, so none can be taken. A
        cached result is returned as the stored bytes.
        """
        ...

    async def claim(
        self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy, claim_id: int | None = None
    ) -> list[Claimed]:
        """Take up to `limit` due jobs, by priority and then by age; no two callers get the same one.

        `claim_id` is a random number of 63 bits that no other claim has. After a StorageUnavailableError the claim may
        have been made nevertheless: `find_claimed` returns its jobs.
        """
        ...

    async def find_claimed(self, queues: Sequence[str], claim_id: int) -> list[Claimed]:
        """Find the jobs of a claim whose reply was lost, except those reaped since."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End runs, each only if its lease still holds the job.

        ValidationError: nothing was settled, because a value of an outcome, such as its result, can never be stored.
        After any other error the caller settles the same outcomes again.
        """
        ...

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Return which of these settlements were made, after a `settle` whose reply was lost.

        The state is what `settle` would have returned; None if the run goes on, was ended by a reaper, or if the job
        was claimed again or is gone, so that the storage does not know.
        """
        ...

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """Move `locked_until` forward for every lease still held; skip locked jobs without waiting."""
        ...

    def job_transaction(
        self, claimed: Claimed, session_factory: Callable[[], Any] | None = None
    ) -> AbstractAsyncContextManager[JobTransaction]:
        """Open a transaction that commits a handler's writes together with its job's completion.

        If the reply to COMMIT is lost, this finds out what happened before it returns or raises. UnsupportedError if
        the storage has no transactions.
        """
        ...

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """Store a value for the next run, if the lease still holds; return whether it did."""
        ...

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """Recover, fail or cancel jobs whose deadline has passed, the most overdue first."""
        ...

    async def next_deadline(self) -> float | None:
        """Return the seconds until a processing job's next deadline, below 0 if overdue, or None."""
        ...

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """Cancel a job that is not running; with `active`, request cancellation of a running one."""
        ...

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """Cancel jobs that are not running; return how many."""
        ...

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """Queue a failed or cancelled job again with all its attempts; None if there is no such job.

        PolicyError if the queue's policy has no free slot for it.
        """
        ...

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """Queue failed or cancelled jobs again if the policy has a slot for them; return how many."""
        ...

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """Delete jobs that are not running, and free their ids; return how many."""
        ...

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Read jobs by id. Results are bytes, and None once their time to live has passed."""
        ...

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """List jobs in enqueue order; return also where to continue (None: that was all)."""
        ...

    async def queue_names(self) -> list[str]:
        """List the names of the queues that were created, or that have or had jobs."""
        ...

    async def stats(self, queue: str) -> QueueStats:
        """Count a queue's jobs by state, now."""
        ...

    async def worker_seen(self, registration: Registration) -> None:
        """Register a worker by its first call; record by each later one that it is alive."""
        ...

    async def worker_stopped(self, registration: Registration) -> None:
        """Remove the record of a worker that has stopped."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """List live workers, then those silent for a day at most (`pgjq.storage.workers`)."""
        ...

    async def prune(self, *, limit: int = 1000) -> int:
        """Remove up to `limit` jobs past their retention, and old worker records; count the jobs."""
        ...

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """Become the only leader in `role`, or renew that; return whether the candidate leads.

        Leadership expires `ttl` seconds after the last call. UnsupportedError if the storage has no leader election.
        """
        ...

    async def leads(self, role: str, candidate: str) -> bool:
        """Return whether an elected candidate may still lead, without a call to the storage.

        False once something that its leadership depends on, such as a connection, is known to be lost; then `elect`
        finds out.
        """
        ...

    async def resign(self, role: str, candidate: str) -> None:
        """Give up the leadership at once."""
        ...

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """Subscribe to the events of one queue or of all; later events are not missed."""
        ...

    async def warn(self, queue: str, job_id: str, *, task: str | None, reason: WarningReason, count: int) -> None:
        """Publish a `warning` event about a job that a worker put back, for `count` such jobs."""
        ...

    async def result_waiter(self, queue: str, job_id: str) -> ResultWaiter:
        """Prepare to wait for a job that is about to be enqueued, or was enqueued, under this id."""
        ...

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """Sleep until one of the queues may have a job to claim, at most `timeout` seconds.

        Return whether one may. A notification may get lost: a storage that is woken by notifications also reads the
        queues every `poll` seconds.
        """
        ...

    async def close(self) -> None:
        """Close this mode's connections; in async mode, those of the running event loop."""
        ...


class Definitions(Protocol):
    """Further operations of a storage with the capability `definitions`."""

    async def create_queue(self, name: str, definition: Definition) -> None:
        """Define a queue; an existing definition stays as it is.

        PolicyError if it has another policy or partition, QueueNotFoundError if its dead letter queue does not exist.
        """
        ...

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """Change a definition; None removes a setting. Existing jobs keep their settings."""
        ...

    async def delete_queue(self, name: str) -> None:
        """Delete a queue and all its jobs; PolicyError if it is the dead letter queue of another."""
        ...

    async def queues(self, name: str | None = None) -> list[QueueInfo]:
        """List all queues, or one, if it exists."""
        ...

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a queue; claims skip a paused one."""
        ...

    async def blocked_keys(self, name: str) -> list[str]:
        """List the keys that failed jobs block; PolicyError if the queue is not in strict order."""
        ...

    async def redrive(self, queue: str, *, limit: int, to: str | None = None) -> int:
        """Send dead letters back to their queues, or to another one; return how many."""
        ...

    async def observe(self, *, with_endings: bool = True) -> list[SizeWarning]:
        """Store every queue's statistics; return the queues that newly exceed their warning size."""
        ...


class Storage(Protocol):
    """The object that users construct. It opens on first use; `close` ends everything."""

    @property
    def capabilities(self) -> Capabilities:
        """What this storage supports."""
        ...

    def operations(self, mode: Mode) -> Operations:
        """Return the operations in one mode."""
        ...

    def dedicated(self) -> Operations:
        """Return blocking operations with a dedicated connection, which never waits for the pool.

        They are for one thread, such as the one that renews leases; their `close` closes the connection.
        """
        ...

    def close(self) -> None:
        """Close everything that this storage opened."""
        ...
