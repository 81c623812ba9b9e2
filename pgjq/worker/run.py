"""One run of one job, and the job as its handler sees it."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from pgjq.blocking import Blocking, drive
from pgjq.errors import LeaseLostError, PgjqError
from pgjq.outcome import Completed, Outcome, decide
from pgjq.serde import serialize_result
from pgjq.worker.abort_signal import CANCELLED, LEASE_LOST, AbortSignal
from pgjq.worker.event_order import Gate

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from datetime import datetime

    from pgjq.options import Headers
    from pgjq.storage.base import Claimed, Operations, Storage
    from pgjq.worker.handler import Consumer

# The worker trusts a renewed lease for a little less than it lasts: by the time that a message may take. A lease that
# nothing renews is the time limit of the run, and the run gets all of it.
MARGIN = 0.1

# A run that has not started this long after its claim is released: another worker may have a free slot.
START_WITHIN = 1.0

# A lease that was not renewed because its row was locked is asked for again after a fourth of the interval, so that a
# short lock costs no lease; and not more often than a handler that renews its own lease asks.
ASK_AGAIN = 0.25
ASK_AGAIN_SECONDS = 0.05

NO_HEADERS: Headers = MappingProxyType({})


class Run:
    """A worker's state of one in-flight run, from the claim until it is settled.

    `trusted_until` is on this machine's monotonic clock and counts from before the claim or heartbeat was sent; the
    storage counts from when it arrived. So the worker always stops trusting a lease before it can expire.
    """

    __slots__ = (
        "_signal",
        "beat",
        "behind",
        "claimed",
        "committed",
        "completing",
        "consumer",
        "ended",
        "expires",
        "gate",
        "held",
        "in_transaction",
        "next_beat",
        "published",
        "skipped",
        "start_by",
        "started",
        "target",
        "trusted_until",
        "waits",
        "worker",
    )

    _deciding = threading.Lock()

    def __init__(
        self,
        claimed: Claimed,
        consumer: Consumer,
        *,
        worker: str,
        sent: float,
        beat: float | None,
        committed: Callable[[Run, Outcome], None],
    ) -> None:
        self.claimed = claimed
        self.consumer = consumer
        self.target = consumer.targets.get(claimed.task, consumer.default)
        self.worker = worker
        self.committed = committed
        self.in_transaction = False
        self.completing = False  # The handler's transaction locks the row and ends the run: nothing to renew.
        self._signal: AbortSignal | None = None
        self.ended = False
        self.beat = beat
        self.next_beat: float | None = None
        # Half of it may pass before the run starts; a run that waits longer is released, at no cost of an attempt.
        self.expires = None if claimed.expire_seconds is None else sent + claimed.expire_seconds / 2
        self.started = False
        self.start_by = sent + START_WITHIN
        self.gate: Gate | None = None  # For events that wait until the end of this run is published.
        self.held: list[Callable[[], None]] | None = None  # Events of this run that wait for earlier ones.
        self.behind: Gate | None = None  # Of the previous run, if its end was not published at the claim.
        self.waits: Sequence[Gate] = ()  # All gates that this run's events wait for.
        self.published = False
        self.trusted_until: float | None = None
        self.skipped = False  # The last heartbeat did not renew the lease: another transaction had locked the row.
        self.renewed(sent)

    @property
    def signal(self) -> AbortSignal:
        """The abort signal. Created on first use, on any thread; most runs never need it."""
        if self._signal is None:
            with AbortSignal.shared:
                self._signal = self._signal or AbortSignal()
        return self._signal

    @property
    def aborted(self) -> bool:
        """Whether the abort signal has been set."""
        return self._signal is not None and self._signal.aborted

    @property
    def abort_reason(self) -> str | None:
        """Why the abort signal was set, if it was."""
        return None if self._signal is None else self._signal.reason

    def make_gate(self) -> Gate:
        """Return this run's gate; created on first use, on any thread."""
        with self._deciding:
            self.gate = self.gate or Gate()
        return self.gate

    def renewed(self, sent: float) -> None:
        """Trust the lease from when its renewal was requested."""
        lease = self.claimed.lease_seconds
        margin = 0.0 if self.beat is None else MARGIN
        self.trusted_until = None if lease is None else sent + lease * (1 - margin)
        self.skipped = False
        if self.beat is not None:
            self.next_beat = sent + self.beat

    def skip(self, sent: float) -> None:
        """Ask for the lease again soon, with unchanged trust: a heartbeat found its row locked."""
        self.skipped = True
        if self.beat is not None:
            self.next_beat = sent + max(self.beat * ASK_AGAIN, min(self.beat, ASK_AGAIN_SECONDS))

    def start(self) -> bool:
        """Acquire the right to call the handler; False if the run is over or was given up."""
        with self._deciding:
            if self.ended or self.aborted:
                return False
            self.started = True
        if self.expires is not None and self.claimed.expire_seconds is not None:
            self.expires += self.claimed.expire_seconds / 2
        return True

    def give_up(self) -> bool:
        """End a run whose handler was not called; False if it was called or the run has ended.

        Of this and `start` only one succeeds. This also acquires the right to end the run, as `end` does.
        """
        with self._deciding:
            return not self.started and self.end()

    def is_over(self) -> bool:
        """Return whether this run must not start: it has ended, or its lease is not trusted."""
        late = self.trusted_until is not None and self.trusted_until <= time.monotonic()
        return self.ended or self.aborted or late

    def decide(self, error: BaseException, chance: float) -> Outcome:
        """Return the outcome of this run if it raised: by its target's rule, else by the job's retry policy."""
        claimed = self.claimed
        if self.target.decide is not None and (outcome := self.target.decide(error, claimed)) is not None:
            return outcome
        return decide(
            error,
            attempts=claimed.attempts,
            max_attempts=claimed.max_attempts,
            options=claimed.options,
            chance=chance,
        )

    def end(self) -> bool:
        """Acquire the right to end this run: only the first caller gets it."""
        if self.ended:
            return False
        self.ended = True
        return True


class _Held:
    """A job as its handler sees it, without the methods that differ between the modes."""

    __slots__ = ("_ops", "_run", "checkpoint", "payload", "result")

    def __init__(self, run: Run, payload: Any, checkpoint: Any, ops: Operations) -> None:
        self.payload: Any = payload
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
    def lease(self) -> int:
        """The lease number of this run's claim."""
        return self._run.claimed.lease.number

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
            raise PgjqError("a run has one transaction() block at most, and this one has had it")
        run.in_transaction = True
        try:
            async with self._ops.job_transaction(run.claimed, session_factory) as job_transaction:
                yield job_transaction.connection
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


class Job(_Held):
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


class AsyncJob(_Held):
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
        """Open a transaction, as `Job.transaction` does, for `async with`."""
        return self._transact(session_factory)


# Both read the run of a job in the other mode, which is private to this module.
# pyright: reportPrivateUsage=false


def as_sync(job: Job | AsyncJob, storage: Storage) -> Job:
    """Return a job as a plain function gets it."""
    if isinstance(job, Job):
        return job
    return Job(job._run, job.payload, job.checkpoint, storage.operations("sync"))  # noqa: SLF001


def as_async(job: Job | AsyncJob, storage: Storage) -> AsyncJob:
    """Return a job as a coroutine on the worker's loop gets it."""
    if isinstance(job, AsyncJob):
        return job
    return AsyncJob(job._run, job.payload, job.checkpoint, storage.operations("async"))  # noqa: SLF001
