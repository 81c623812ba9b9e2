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

from typing import TYPE_CHECKING, Any, Protocol

from pgjq.outcome import EndedRun
from pgjq.storage.definitions import Definitions, SizeWarning
from pgjq.storage.resources import JobTransaction, ResultWaiter, Subscription
from pgjq.storage.values import (
    Answer,
    Capabilities,
    Claimed,
    HeartbeatResult,
    Lease,
    Reaped,
    Settled,
    Settlement,
    settled_as,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import (
        Attempt,
        CancelResult,
        EnqueueResult,
        JobStatus,
        QueueStats,
        WarningReason,
        WorkerInfo,
    )
    from pgjq.lease import LeasePolicy
    from pgjq.options import JobFilter, Submission
    from pgjq.storage.workers import Registration


__all__ = [
    "Answer",
    "Capabilities",
    "Claimed",
    "Definitions",
    "EndedRun",
    "HeartbeatResult",
    "JobTransaction",
    "Lease",
    "Operations",
    "Reaped",
    "ResultWaiter",
    "Settled",
    "Settlement",
    "SizeWarning",
    "Storage",
    "Subscription",
    "settled_as",
]


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
        """Return which of these settlements succeeded, after a `settle` whose reply was lost.

        The state is what `settle` would have returned; None if the run goes on, if a reaper or an operator ended it, or
        if the storage does not know: the job is gone, or was released and is not where it returned to any more. A run
        whose cancellation was requested is `cancelled`, whether a settlement or a reaper ended it.
        """
        ...

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """Move `locked_until` forward for every lease still held; skip locked jobs without waiting."""
        ...

    def job_transaction(
        self,
        claimed: Claimed,
        session_factory: Callable[[], Any] | None = None,
        *,
        idle_limit: float | None = None,
    ) -> AbstractAsyncContextManager[JobTransaction]:
        """Open a transaction that commits a handler's writes together with its job's completion.

        The server rolls it back when it has been idle for `idle_limit` seconds; the block then raises LeaseLostError.
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

    async def release(self, queue: str, job_ids: Sequence[str]) -> int:
        """Take running jobs away from their workers; return how many. Their attempts do not count.

        Their runs are recorded as `lease_lost`. A requested cancellation wins.
        """
        ...

    async def reschedule(
        self, queue: str, job_id: str, *, run_at: datetime | None = None, priority: int | None = None
    ) -> JobStatus | None:
        """Change when a waiting job may run, and its priority; return it, or None without one.

        A job in another state is left alone.
        """
        ...

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """Delete jobs that are not running, and free their ids; return how many."""
        ...

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """Read jobs by id. Results are bytes, and None once their time to live has passed."""
        ...

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """Return the runs of a job that have ended, oldest first; none if there is no such job.

        A run is recorded once, by what ends it. At most 20 of a job are kept, the first and the last 19, until the job
        is deleted or pruned; `retry` keeps them. A job that completes at its first run costs no write for this.
        """
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
