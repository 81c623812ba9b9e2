"""The `Operations` of storages that keep their jobs in a model.

A storage defines how an operation is done (`_do`: with which lock, journal and thread) and where it keeps its worker
records; each operation is one function of the model.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from pgjq.errors import UnsupportedError
from pgjq.storage.model import commands, queues, reads, runs
from pgjq.storage.model.claim_deadlines import Claimant
from pgjq.storage.model.definitions import ModelDefinitions
from pgjq.storage.model.result_waiter import ModelResultWaiter
from pgjq.storage.model.schedules import ModelSchedules
from pgjq.storage.workers import list_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import Attempt, CancelResult, EnqueueResult, JobStatus, QueueStats, WarningReason, WorkerInfo
    from pgjq.lease import LeasePolicy
    from pgjq.options import JobFilter, Submission
    from pgjq.storage.base import (
        Claimed,
        HeartbeatResult,
        JobTransaction,
        Lease,
        Reaped,
        ResultWaiter,
        Settled,
        Settlement,
    )
    from pgjq.storage.clock import StorageClock
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.subscribers import Subscribers
    from pgjq.storage.workers import Registration, WorkerRecord

R = TypeVar("R")


class Do(Protocol):
    """How a storage does an operation."""

    async def __call__(self, verb: Callable[[Jobs], R]) -> R:
        """Do an operation completely or not at all."""
        ...


class Registry(Protocol):
    """Where a storage keeps its worker records. It is called inside an operation."""

    def seen(self, registration: Registration, now: datetime) -> None:
        """Add a record, or update when its worker was last seen."""
        ...

    def stopped(self, registration: Registration) -> None:
        """Remove a record, if it exists."""
        ...

    def records(self) -> list[WorkerRecord]:
        """List all records."""
        ...

    def prune(self, now: datetime) -> None:
        """Remove old records."""
        ...


class ModelOperations(ModelDefinitions, ModelSchedules):
    """The operations, in one mode."""

    def __init__(self, storage: str, mode: Mode) -> None:
        self._name = storage
        self._mode: Mode = mode

    @abstractmethod
    async def _do_unsynced(self, verb: Callable[[Jobs], R]) -> R:
        """Do an operation that a crash may undo, because no survivor of the crash relies on it."""

    @property
    @abstractmethod
    def _registry(self) -> Registry: ...

    @property
    @abstractmethod
    def _subscribers(self) -> Subscribers: ...

    @property
    @abstractmethod
    def _clock(self) -> StorageClock: ...

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, generated_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """See `Operations`; generated ids are checked like others."""
        del generated_ids
        if connection is not None:
            message = f"{self._name} has no transactions; enqueue without connection=, or use PostgresStorage"
            raise UnsupportedError(message)
        return await self._do(partial(commands.enqueue, queue=queue, submissions=jobs))

    async def claim(
        self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy, claim_id: int | None = None
    ) -> list[Claimed]:
        """See `Operations`."""
        claimant = Claimant(worker, claim_id, policy)
        return await self._do(partial(runs.claim, queues=queues, claimant=claimant, limit=limit))

    async def find_claimed(self, queues: Sequence[str], claim_id: int) -> list[Claimed]:
        """See `Operations`."""
        del queues  # The claim's jobs are all of its queues.
        return await self._do(partial(runs.find_claimed, claim_id=claim_id))

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        return await self._do(partial(runs.settle, settlements=settlements))

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        return await self._do(partial(runs.find_settled, settlements=settlements))

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """See `Operations`."""
        return await self._do_unsynced(partial(runs.heartbeat, leases=leases))

    def job_transaction(
        self,
        claimed: Claimed,
        session_factory: Callable[[], Any] | None = None,
        *,
        idle_limit: float | None = None,
    ) -> AbstractAsyncContextManager[JobTransaction]:
        """Raise UnsupportedError: the storage has no transactions."""
        del session_factory, idle_limit
        raise UnsupportedError(
            f"{self._name} has no transactions; complete job {claimed.lease.id!r} by returning its result"
        )

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """See `Operations`."""
        return await self._do(partial(runs.save_checkpoint, lease=lease, checkpoint=checkpoint))

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """See `Operations`."""
        return await self._do(partial(runs.reap, limit=limit, stale_age=stale_age))

    async def next_deadline(self) -> float | None:
        """See `Operations`."""
        return await self._do_unsynced(runs.next_deadline)

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """See `Operations`."""
        return await self._do(partial(commands.cancel, queue=queue, job_id=job_id, active=active))

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Operations`."""
        return await self._do(partial(commands.retry, queue=queue, job_id=job_id))

    async def release(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._do(partial(commands.release_running, queue=queue, job_ids=job_ids))

    async def reschedule(
        self, queue: str, job_id: str, *, run_at: datetime | None = None, priority: int | None = None
    ) -> JobStatus | None:
        """See `Operations`."""
        return await self._do(
            partial(commands.reschedule, queue=queue, job_id=job_id, run_at=run_at, priority=priority)
        )

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._do(partial(commands.delete, queue=queue, job_ids=job_ids))

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Operations`."""
        return await self._do(partial(reads.get, queue=queue, job_ids=job_ids))

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """See `Operations`."""
        return await self._do(partial(reads.attempts, queue=queue, job_id=job_id))

    async def content(self, queue: str, job_id: str) -> tuple[bytes, bytes | None] | None:
        """Read a job's payload and checkpoint, for the web page."""
        return await self._do(partial(reads.content, queue=queue, job_id=job_id))

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """See `Operations`."""
        return await self._do(partial(reads.find, wanted=wanted))

    async def queue_names(self) -> list[str]:
        """See `Operations`."""
        return await self._do_unsynced(lambda jobs: sorted(jobs.queues))

    async def stats(self, queue: str) -> QueueStats:
        """See `Operations`."""
        return await self._do(partial(reads.stats, queue=queue))

    async def worker_seen(self, registration: Registration) -> None:
        """See `Operations`."""
        await self._do_unsynced(lambda jobs: self._registry.seen(registration, jobs.now))

    async def worker_stopped(self, registration: Registration) -> None:
        """See `Operations`."""
        await self._do_unsynced(lambda _: self._registry.stopped(registration))

    async def workers(self) -> list[WorkerInfo]:
        """See `Operations`."""
        return await self._do_unsynced(
            lambda jobs: list_workers(self._registry.records(), reads.running(jobs), jobs.now)
        )

    async def prune(self, *, limit: int = 1000) -> int:
        """See `Operations`."""
        await self._do_unsynced(lambda jobs: self._registry.prune(jobs.now))
        return await self._do(partial(commands.prune, limit=limit))

    async def warn(self, queue: str, job_id: str, *, task: str | None, reason: WarningReason, count: int) -> None:
        """See `Operations`."""
        await self._do(partial(queues.warn, name=queue, id=job_id, task=task, reason=reason, count=count))

    async def result_waiter(self, queue: str, job_id: str) -> ResultWaiter:
        """See `Operations`."""
        return ModelResultWaiter(self._do, self._subscribers, self._mode, queue, job_id)

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`."""
        until = time.monotonic() + timeout
        with self._subscribers.sleeping(queues, self._mode) as sleeper:
            while True:
                due = await self._do_unsynced(sleeper.seconds_until_work)
                if due is not None and due <= 0:
                    return True
                left = until - time.monotonic()
                if left <= 0:
                    return False
                if any(await sleeper.box.take(min(left, self._recheck_interval(poll), self._clock.recheck_after(due)))):
                    return True

    def _recheck_interval(self, poll: float) -> float:
        """Return the seconds after which to check without a notification."""
        return poll
