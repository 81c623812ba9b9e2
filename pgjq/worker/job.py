"""The job as its handler sees it."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Generic

from pgjq.blocking import Blocking, drive
from pgjq.errors import LeaseLostError, PgjqError
from pgjq.outcome import Completed
from pgjq.serde import serialize_result
from pgjq.type_variables import Payload_co
from pgjq.worker.abort_signal import CANCELLED, LEASE_LOST, AbortSignal
from pgjq.worker.run import ASK_AGAIN_SECONDS, NO_HEADERS

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime

    from pgjq.options import Headers
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Operations, Storage
    from pgjq.worker.run import Run


class _Held(Generic[Payload_co]):
    """A job as its handler sees it, without the methods that differ between the modes."""

    __slots__ = ("_ops", "_run", "checkpoint", "payload", "result")

    def __init__(self, run: Run, payload: Payload_co, checkpoint: Any, ops: Operations) -> None:
        self.payload = payload
        self.checkpoint: Any = checkpoint
        self.result: Any = None
        self._run = run
        self._ops = ops

    @property
    def signal(self) -> AbortSignal:
        """The abort signal."""
        return self._run.signal

    @property
    def id(self) -> str:
        """The job's id."""
        return self._run.claimed.lease.id

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._run.claimed.lease.queue

    @property
    def attempts(self) -> int:
        """The number of runs so far, this one included."""
        return self._run.claimed.attempts

    @property
    def max_attempts(self) -> int:
        """The largest number of runs."""
        return self._run.claimed.max_attempts

    @property
    def created_at(self) -> datetime:
        """When the job was enqueued, by the storage's clock."""
        return self._run.claimed.created_at

    @property
    def task(self) -> str | None:
        """The name of the task that the payload names, if any."""
        return self._run.claimed.task

    @property
    def headers(self) -> Headers:
        """The headers that the job was enqueued with."""
        return self._run.claimed.headers or NO_HEADERS

    @property
    def worker(self) -> str:
        """The id of the worker that runs the job."""
        return self._run.worker

    @property
    def lease(self) -> int:
        """The lease number of this run's claim."""
        return self._run.claimed.lease.number

    def outcome_of(self, error: BaseException) -> Outcome:
        """Return how this run would end if it raised an error, for middleware."""
        return self._run.decide(error, 0.5)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue}/{self.id} attempt {self.attempts} of {self.max_attempts}>"

    async def _pause(self, seconds: float) -> None:
        raise NotImplementedError

    async def _renew(self) -> None:
        """Ask until the lease is renewed or lost; while its row is locked, it is neither."""
        while not await self._ask_to_renew():
            await self._pause(ASK_AGAIN_SECONDS)
            if self._run.is_over():
                raise self._lost()

    async def _ask_to_renew(self) -> bool:
        sent = time.monotonic()
        pulse = await self._ops.heartbeat([self._run.claimed.lease])
        if pulse.lost:
            raise self._lost()
        if pulse.cancel_requested:
            self.signal.abort(CANCELLED)
        if not pulse.skipped:
            self._run.renewed(sent)
            if self._run.job_transaction is not None:
                await self._run.job_transaction.restart_idle_limit()
        return not pulse.skipped

    async def _keep(self, value: Any) -> None:
        data = self._run.consumer.payload_serde.serialize(value)
        if not await self._ops.save_checkpoint(self._run.claimed.lease, data):
            raise self._lost()
        self.checkpoint = value

    @asynccontextmanager
    async def _transact(self, session_factory: Callable[[], Any] | None) -> AsyncGenerator[Any]:
        run = self._run
        if run.ended and run.aborted:
            raise self._lost()
        if run.ended or run.in_transaction:
            raise PgjqError("a run has at most one transaction() block, and this run has used it")
        run.in_transaction = True
        try:
            transaction = self._ops.job_transaction(run.claimed, session_factory, idle_limit=run.idle_limit)
            async with transaction as job_transaction:
                run.job_transaction = job_transaction
                try:
                    yield job_transaction.connection
                finally:
                    run.job_transaction = None
                result = serialize_result(run.consumer.result_serde, self.result, self.id)
                run.completing = True
                await job_transaction.complete(result)
        except BaseException as error:
            run.completing = False
            if isinstance(error, LeaseLostError):
                self.signal.abort(LEASE_LOST)
            raise
        if run.end():
            run.committed(run, Completed(result))

    def _lost(self) -> LeaseLostError:
        self.signal.abort(LEASE_LOST)
        return LeaseLostError(f"the lease of job {self.id!r} is lost: a reaper or another worker has the job")


class Job(_Held[Payload_co]):
    """A job, as a plain function or callback gets it."""

    __slots__ = ()

    async def _pause(self, seconds: float) -> None:
        self.signal.wait(seconds)

    def heartbeat(self) -> None:
        """Renew the lease now; LeaseLostError if it is gone."""
        drive(self._renew())

    def save_checkpoint(self, value: Any) -> None:
        """Store a value for the next run if this one does not finish; may raise LeaseLostError."""
        drive(self._keep(value))

    def transaction(self, session_factory: Callable[[], Any] | None = None) -> AbstractContextManager[Any]:
        """Open a transaction in which the handler's writes and the job's completion commit together.

        The block gets a psycopg connection, or the result of `session_factory`: a SQLAlchemy session. Set `job.result`
        inside the block to return a result. An exception rolls everything back; so does a lost lease, with a
        LeaseLostError. A run may have one such block.
        """
        return Blocking(self._transact(session_factory))


class AsyncJob(_Held[Payload_co]):
    """A job, as a coroutine gets it: the same methods, awaited."""

    __slots__ = ()

    async def _pause(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def heartbeat(self) -> None:
        """Renew the lease now; LeaseLostError if it is gone."""
        await self._renew()

    async def save_checkpoint(self, value: Any) -> None:
        """Store a value for the next run if this one does not finish; may raise LeaseLostError."""
        await self._keep(value)

    def transaction(self, session_factory: Callable[[], Any] | None = None) -> AbstractAsyncContextManager[Any]:
        """Open a transaction for `async with`, as `Job.transaction` does for `with`.

        The factory may return an awaitable.
        """
        return self._transact(session_factory)


def as_sync(job: Job | AsyncJob, storage: Storage) -> Job:
    """Return a job as a plain function gets it."""
    if isinstance(job, Job):
        return job
    run = job._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (the same run in the other mode)
    return Job(run, job.payload, job.checkpoint, storage.operations("sync"))


def as_async(job: Job | AsyncJob, storage: Storage) -> AsyncJob:
    """Return a job as a coroutine on the worker's loop gets it."""
    if isinstance(job, AsyncJob):
        return job
    run = job._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]  (the same run in the other mode)
    return AsyncJob(run, job.payload, job.checkpoint, storage.operations("async"))
