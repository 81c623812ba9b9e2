"""The port: what pgjq asks of a storage.

It is cut at the operation, not at the query, and shaped for batches. Three rules hold for every storage:

* **One clock.** Every deadline is set and compared by the storage's own clock, never by a caller's.
* **Fencing.** Each claim raises the job's lease number. Whatever ends or extends a run names the lease it holds; a
  write under an old lease changes nothing and is reported back.
* **Atomic operations.** An operation is done or it is not; any number of callers may make the same one at once.

A `Storage` is what users construct and share. It hands out `Operations` in two modes from one source: coroutines
that await, or coroutines that block the thread and never suspend (`pgjq.blocking`). `pgjq.testing.StorageConformance`
is this contract as a test suite, for storages written elsewhere, too.
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
        WorkerInfo,
    )
    from pgjq.lease import LeasePolicy
    from pgjq.options import JobFilter, Submission
    from pgjq.outcome import Outcome
    from pgjq.storage.workers import Registration


def _meaning(text: str) -> dict[str, str]:
    return {"means": text}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a storage can promise. `docs/storages.md` shows them side by side, from what is declared here."""

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
    """The right to end one run of one job. `key` is the storage's own name for the job."""

    queue: str
    id: str
    number: int
    key: Any


class Claimed(NamedTuple):
    """A job in a worker's hands."""

    lease: Lease
    payload: bytes
    attempts: int
    max_attempts: int
    created_at: datetime
    lease_seconds: float | None
    expire_seconds: float | None
    checkpoint: bytes | None = None
    options: JobOptions = NO_OPTIONS


class Settlement(NamedTuple):
    """How a run ended, under which lease."""

    lease: Lease
    outcome: Outcome


class Settled(NamedTuple):
    """The state a settlement led to: `cancelled` where a wish to cancel came first, None where the lease was lost."""

    lease: Lease
    state: State | None


def made(settlement: Settlement, state: State | None, same_error: bool) -> Settled:  # noqa: FBT001
    """Answer for one settlement of `find_settled`; `state` is what its run left the job in, None if it is not known."""
    known = state is not None and may_have_led_to(settlement.outcome, state, same_error=same_error)
    return Settled(settlement.lease, state if known else None)


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """What a heartbeat learned. A lease that is neither lost nor skipped was renewed.

    A skipped lease is held, but was not renewed: another transaction has locked its job. The caller asks again soon.
    """

    lost: list[Lease]
    cancel_requested: list[Lease]
    skipped: Sequence[Lease] = ()


@dataclass(frozen=True, slots=True)
class Reaped:
    """A stalled job, and what became of it. `payload` is there if it failed, for whoever buries it."""

    queue: str
    id: str
    count: int
    attempts: int
    max_attempts: int
    action: Action
    reason: Reason
    worker: str
    payload: bytes | None = None


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """A queue that has grown past the size at which its definition wants a warning."""

    queue: str
    count: int
    size: int


class JobTransaction(Protocol):
    """An open transaction. Leaving its block without having completed rolls it back."""

    @property
    def connection(self) -> Any:
        """What the handler writes through."""
        ...

    async def complete(self, result: bytes | None) -> None:
        """Complete the job inside the transaction; LeaseLostError if the lease is gone."""
        ...


class Subscription(Protocol):
    """A stream of events; bounded, so a slow reader loses the oldest and `dropped` counts them."""

    @property
    def dropped(self) -> int:
        """How many events were lost because nobody took them in time."""
        ...

    async def next(self, timeout: float) -> list[Event]:
        """Wait up to `timeout` seconds for something to happen; an empty list when nothing did."""
        ...

    async def close(self) -> None:
        """Stop listening."""
        ...

    def __aiter__(self) -> AsyncIterator[Event]:
        """Walk the events until the subscription is closed."""
        ...


class Answer(NamedTuple):
    """How a job stands: ended, with its result or error while they can be read, or not yet."""

    state: State
    attempts: int
    max_attempts: int
    result: bytes | None = None
    error: JobError | None = None
    expired: bool = False


class ResultWaiter(Protocol):
    """One caller's wait for one job.

    It is made before the job is enqueued, so that nothing can happen unheard. It then belongs to the job that `enqueue`
    added or found, whatever becomes of the id later: cancelled and enqueued again, it is another job, and this one
    has been cancelled. A storage tells of the end of jobs that somebody expects, and of no others, if it can.
    """

    async def enqueue(self, job: Submission, *, generated_id: bool = False) -> EnqueueResult:
        """Enqueue the job, or join it if it is there already; the answer is that of `Operations.enqueue`."""
        ...

    async def answer(self, timeout: float) -> Answer | None:
        """Wait until the job has ended, `timeout` seconds at the longest, and return how it stands then.

        None says that it is gone: deleted, or pruned. What has `expired` has lost its result or error. Closing the
        storage meanwhile is a StorageError.
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
        """Add the jobs whose ids are free and return one result for each job, in order; add none on an error.

        `generated_ids`: pgjq has just made every id, so none of them can be taken. A cached result is returned as the
        bytes that were stored.
        """
        ...

    async def claim(
        self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy, claim_id: int | None = None
    ) -> list[Claimed]:
        """Take up to `limit` due jobs, by priority and then by age; no two callers get the same one.

        `claim_id` is a random number of 63 bits that no other claim has. If StorageUnavailableError is raised, the
        claim may have been made nevertheless: `find_claimed` tells.
        """
        ...

    async def find_claimed(self, queues: Sequence[str], claim_id: int) -> list[Claimed]:
        """Find the jobs that a claim took whose answer was lost, except those that a reaper has taken back since."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """End runs, each only if its lease is still the job's.

        ValidationError says that nothing was settled because a value of an outcome, such as its result, cannot be
        stored, now or later. Every other error leaves the outcomes as they are: the caller offers them again.
        """
        ...

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """Tell which of these settlements were made, after a `settle` whose answer was lost.

        The state is the one that the settlement led to, as `settle` would have answered; None where the run goes on,
        was ended by a reaper, or where the job has been claimed again or is gone, so that the storage cannot tell.
        """
        ...

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """Move `locked_until` ahead for every lease that is still held; skip jobs that are locked, without waiting."""
        ...

    def job_transaction(
        self, claimed: Claimed, session_factory: Callable[[], Any] | None = None
    ) -> AbstractAsyncContextManager[JobTransaction]:
        """Open a transaction in which a handler's writes and its job's completion commit together, or not at all.

        Where the answer to COMMIT is lost, this finds out what happened before it returns or raises. Raises
        UnsupportedError where the storage has no transactions.
        """
        ...

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """Keep a value for the next run, if the lease still holds; say whether it did."""
        ...

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """Take back jobs whose deadline passed, the most overdue first."""
        ...

    async def next_deadline(self) -> float | None:
        """Seconds until the next processing job's deadline passes (below 0: overdue); None when there is none."""
        ...

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """Withdraw a job that is not running; with `active`, ask a running one to end."""
        ...

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """Withdraw jobs that are not running; return how many were."""
        ...

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """Put a failed or cancelled job back with all its attempts; None if there is no such job.

        PolicyError if the queue's policy has no place for it now.
        """
        ...

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """Put failed or cancelled jobs back, as far as the policy has a place for them; return how many were."""
        ...

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """Forget jobs that are not running, and their ids; return how many."""
        ...

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Look jobs up. Results are bytes, and gone once their time to live has passed."""
        ...

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """List jobs in the order they were enqueued, and where to go on (None: that was all)."""
        ...

    async def queue_names(self) -> list[str]:
        """List the queues that were created, or that have or had jobs, by their names."""
        ...

    async def stats(self, queue: str) -> QueueStats:
        """Count a queue's jobs by state, now."""
        ...

    async def worker_seen(self, registration: Registration) -> None:
        """Record that a worker is there: its first call registers it, each further one says that it is still alive."""
        ...

    async def worker_stopped(self, registration: Registration) -> None:
        """Remove the record of a worker that has stopped."""
        ...

    async def workers(self) -> list[WorkerInfo]:
        """List workers that are alive, then those that have been silent for a day at most (`pgjq.storage.workers`)."""
        ...

    async def prune(self, *, limit: int = 1000) -> int:
        """Remove up to `limit` jobs whose time has passed, and old records of workers; return how many jobs."""
        ...

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """Become, or prove still to be, the only leader in `role`; the office lapses `ttl` seconds after the last call.

        Raises UnsupportedError where the storage has no leaders.
        """
        ...

    async def leads(self, role: str, candidate: str) -> bool:
        """Tell whether one that was elected may still lead, without asking the storage.

        False once what its office hangs on, such as a connection, is known to be lost; then `elect` finds out.
        """
        ...

    async def resign(self, role: str, candidate: str) -> None:
        """Leave the office at once."""
        ...

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """Listen to the events of one queue or of all; what happens after this returns is heard."""
        ...

    async def result_waiter(self, queue: str, job_id: str) -> ResultWaiter:
        """Make ready to wait for a job that is about to be enqueued under this id."""
        ...

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """Sleep until one of the queues may have a job to claim, `timeout` seconds at the longest; say if one may.

        A notice may get lost: a storage that is woken by notices looks for itself every `poll` seconds.
        """
        ...

    async def close(self) -> None:
        """Close what this mode holds here: in the async one, the connections of the running event loop."""
        ...


class Definitions(Protocol):
    """What the operations of a storage can do besides, if it promises `definitions`."""

    async def create_queue(self, name: str, definition: Definition) -> None:
        """Define a queue, unless it is: then it stays as it is.

        PolicyError if it has another policy or partition, QueueNotFoundError if its dead letter queue is not there.
        """
        ...

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """Change a definition; None takes a setting back. Jobs that exist keep what they had."""
        ...

    async def delete_queue(self, name: str) -> None:
        """Delete a queue and all its jobs; PolicyError while it is another one's dead letter."""
        ...

    async def queues(self, name: str | None = None) -> list[QueueInfo]:
        """List all queues, or one, if it is there."""
        ...

    async def pause(self, name: str, *, paused: bool) -> None:
        """Have claims pass a queue over, or not any more."""
        ...

    async def blocked_keys(self, name: str) -> list[str]:
        """List the keys that failed jobs block; PolicyError if the queue is not in strict order."""
        ...

    async def redrive(self, queue: str, *, limit: int, to: str | None = None) -> int:
        """Send dead letters back to where they came from, or to another queue; return how many."""
        ...

    async def observe(self, *, with_endings: bool = True) -> list[SizeWarning]:
        """Keep every queue's statistics, and tell of those that have grown past their warning size since."""
        ...


class Storage(Protocol):
    """What users construct. It opens on first use, and `close` ends all of it."""

    @property
    def capabilities(self) -> Capabilities:
        """What this storage can promise."""
        ...

    def operations(self, mode: Mode) -> Operations:
        """Return the operations in one mode."""
        ...

    def dedicated(self) -> Operations:
        """Return blocking operations with a connection of their own, which nobody else can keep them from.

        They are for one thread, such as the one that renews leases, and are closed by their `close`.
        """
        ...

    def close(self) -> None:
        """Close everything that this storage opened."""
        ...
