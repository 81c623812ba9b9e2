"""Run jobs in a test: those that are due, those that become due, or one call of a task."""

from __future__ import annotations

import asyncio
import time
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar, cast, overload

from pgjq.blocking import drive
from pgjq.convert import shaped
from pgjq.errors import JobCancelledError, LeaseLostError, PgjqError, ValidationError
from pgjq.job import NewJob
from pgjq.options import JobFilter, check_datetime
from pgjq.outcome import Completed, Failed, Failing, Released, Snooze, Snoozed
from pgjq.queue import AsyncQueue, Queue
from pgjq.schedules.plan import plan
from pgjq.storage.base import Settlement
from pgjq.tasks.task import AsyncTask, Task
from pgjq.testing.clock import clock_of
from pgjq.testing.faults import WorkerCrash
from pgjq.testing.inline_worker import Ended, InlineWorker
from pgjq.testing.replace_storage import see_moved_clock, use_connection
from pgjq.worker.declared_schedules import ensure
from pgjq.worker.reaping import log_reaped

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from contextlib import AbstractContextManager

    from pgjq.job import State
    from pgjq.storage.base import Claimed, Storage
    from pgjq.storage.schedules import ScheduleOperations

P = ParamSpec("P")
R = TypeVar("R")

BATCH: Final = 1000
FIRST: Final = 2**15 - 1
SOON: Final = timedelta(milliseconds=1)
_ENQUEUE_MANY: Final[Any] = AsyncQueue.enqueue_many  # It runs in both modes: that of a Queue drives it.
LONGEST_WAIT: Final = timedelta(minutes=1)


@overload
def drain(queue: Queue[Any, Any], *, until: datetime | timedelta | None = None, connection: Any = None) -> int: ...
@overload
def drain(
    queue: AsyncQueue[Any, Any], *, until: datetime | timedelta | None = None, connection: Any = None
) -> Coroutine[Any, Any, int]: ...
def drain(
    queue: Queue[Any, Any] | AsyncQueue[Any, Any],
    *,
    until: datetime | timedelta | None = None,
    connection: Any = None,
) -> int | Coroutine[Any, Any, int]:
    """Run a queue's due jobs until none is; return how many ran. Await it for an `AsyncQueue`.

    Jobs that they enqueue run, too, and so do retries, stalled jobs and jobs of schedules that are due. With `until`,
    a time or a time from now, the clock of the test moves to each time at which a job becomes due, and in the end to
    `until`. A clock that runs by itself is waited for, a minute at most. With `connection`, everything happens inside
    the open transaction of that connection (`use_connection`).
    """
    if isinstance(queue, AsyncQueue):
        return _drain(queue, until, connection)
    if isinstance(queue, Queue):  # pyright: ignore[reportUnnecessaryIsInstance]
        return drive(_drain(queue, until, connection))
    raise ValidationError(f"drain takes a Queue or an AsyncQueue, not {queue!r:.80}")


async def _drain(queue: Queue | AsyncQueue, until: datetime | timedelta | None, connection: Any) -> int:
    with _on(queue.storage, connection):
        async with InlineWorker(queue) as worker:
            return await Drain(worker).run(until)


def _on(storage: Storage, connection: Any) -> AbstractContextManager[None]:
    return nullcontext() if connection is None else use_connection(storage, connection)


class Drain:
    """One drain of a queue."""

    def __init__(self, worker: InlineWorker) -> None:
        self._worker = worker
        self._queue, self._ops = worker.queue, worker.ops
        self._clock = clock_of(self._queue.storage)
        self._has_schedules = self._queue.storage.capabilities.definitions
        self._schedules = cast("ScheduleOperations", worker.ops)

    async def run(self, until: datetime | timedelta | None) -> int:
        """Run until nothing is due, or until a time."""
        await self._see_clock()
        end = await self._end(until)
        for declared in self._queue.declared_schedules if self._has_schedules else ():
            await ensure(self._schedules, declared)
        ran = 0
        while True:
            claimed = await self._worker.claim()
            if claimed is not None:
                try:
                    await self._worker.run(claimed)
                except WorkerCrash as crash:
                    return ran + crash.ran
                ran += 1
            elif not (await self._tick() or await self._reap() or await self._wait(end)):
                return ran

    async def _end(self, until: datetime | timedelta | None) -> datetime | None:
        if until is None:
            return None
        now = await self._now()
        end = now + until if isinstance(until, timedelta) else check_datetime("until", until)
        if self._clock is None and end - now > LONGEST_WAIT:
            raise ValidationError(
                f"until={end} is more than a minute away, and the clock of this {type(self._queue.storage).__name__}"
                " runs by itself: use the fixture pgjq_clock, or MemoryStorage(clock=ManualClock())"
            )
        return end

    async def _now(self) -> datetime:
        if self._clock is not None:
            return self._clock.now()
        return await self._schedules.storage_time() if self._has_schedules else datetime.now(UTC)

    async def _tick(self) -> bool:
        """Make the jobs of schedules that are due, in any queue; return whether there were any."""
        if not self._has_schedules:
            return False
        due = await self._schedules.due_schedules(limit=BATCH, poll=1.0)
        plans = [plan(schedule, due.now) for schedule in due.schedules]
        return bool(plans and await self._schedules.tick(plans))

    async def _reap(self) -> bool:
        """Take stalled jobs back; return whether there were any."""
        self._worker.publisher.reaping()
        found = await self._ops.reap(limit=BATCH, stale_age=self._queue.lease_policy.stale_age)
        log_reaped(found, self._queue.bus.logger)
        self._worker.publisher.reaped(found)
        return bool(found)

    async def _wait(self, end: datetime | None) -> bool:
        """Move the clock to what is due next, or wait for it; False if nothing is due until the end."""
        if end is None or (now := await self._now()) >= end:
            return False
        due = [time for time in await self._due_times(now) if now < time <= end]
        if self._clock is not None:
            self._clock.move_to(min(due, default=end))
            await self._see_clock()
            return True
        if due:
            await self._sleep((min(due) - now).total_seconds())
        return bool(due)

    async def _see_clock(self) -> None:
        if self._clock is not None:
            await see_moved_clock(self._queue.storage)

    async def _sleep(self, seconds: float) -> None:
        if self._worker.mode == "sync":
            time.sleep(seconds)  # noqa: ASYNC251  (the sync mode never suspends)
        else:
            await asyncio.sleep(seconds)

    async def _due_times(self, now: datetime) -> list[datetime]:
        states: tuple[State, State] = ("queued", "failing")
        times = [time for state in states for time in await self._run_times(state)]
        deadline = await self._ops.next_deadline()
        if deadline is not None:
            times.append(now + timedelta(seconds=deadline + self._queue.lease_policy.stale_age) + SOON)
        if self._has_schedules:
            found = await self._schedules.schedules()
            times += [schedule.due_at for schedule in found if schedule.due_at is not None and not schedule.paused]
        return times

    async def _run_times(self, state: State) -> list[datetime]:
        times: list[datetime] = []
        after: int | None = 0
        while after is not None:
            wanted = JobFilter(self._queue.name, state, after=after, limit=BATCH)
            jobs, after = await self._ops.find(wanted)
            times += [job.run_at for job in jobs if job.run_at is not None]
        return times


@overload
def run(task: Task[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
@overload
def run(task: AsyncTask[P, R, Any], /, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]: ...
@overload
def run(task: Queue[Any, R], payload: Any, /) -> R: ...
@overload
def run(task: AsyncQueue[Any, R], payload: Any, /) -> Coroutine[Any, Any, R]: ...
def run(task: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Enqueue a call of a task, run that job once, now, and return its result.

    Await it for an `AsyncTask`. The arguments and the result go through the serdes. If the run fails, its exception is
    raised, and the job is `failing` or `failed`, as a worker would leave it: `drain` with `until` runs the retries. A
    queue with a handler takes the payload instead: `run(queue, payload)`. `task.using(connection=…)` runs it in that
    transaction.
    """
    queue: Any = task
    connection, returns = None, Any
    if isinstance(task, Task | AsyncTask):
        named = cast("Any", task)
        job = named.using(priority=FIRST, run_at=None, delay=None)._call(args, kwargs)  # noqa: SLF001
        queue, connection, returns = named.queue, named.connection, named.arguments.returns
    elif isinstance(task, Queue | AsyncQueue):
        if len(args) != 1 or kwargs:
            raise ValidationError("run takes a queue and one payload, or a task and its arguments")
        job = NewJob(None, args[0], priority=FIRST)
    else:
        raise ValidationError(f"run takes a task, or a queue and a payload, not {task!r:.80}")
    running = _run(queue, job, connection, returns)
    return running if isinstance(queue, AsyncQueue) else drive(running)


async def _run(queue: Any, job: Any, connection: Any, returns: Any) -> Any:
    with _on(queue.storage, connection):
        async with InlineWorker(queue) as worker:
            (enqueued,) = await _ENQUEUE_MANY(queue, [job])
            if enqueued.status != "queued":
                raise PgjqError(f"job {enqueued.id!r} is {enqueued.existing_state} already: run it under another id")
            ended = await worker.run(await _claim(worker, enqueued.id))
    return _result(queue, enqueued.id, ended, returns)


async def _claim(worker: InlineWorker, job_id: str) -> Claimed:
    """Claim one job; release those that come before it."""
    others: list[Claimed] = []
    try:
        while (claimed := await worker.claim()) is not None:
            if claimed.lease.id == job_id:
                return claimed
            others.append(claimed)
    finally:
        await worker.ops.settle([Settlement(other.lease, Released()) for other in others])
    raise PgjqError(f"job {job_id!r} cannot run now: its queue is paused, or its key is busy")


def _result(queue: Any, job_id: str, ended: Ended, returns: Any) -> Any:
    """Return the result, or raise what the worker recorded."""
    if ended.state is None:
        raise LeaseLostError(f"the lease of job {job_id!r} was lost: its outcome was refused")
    if ended.state == "cancelled":
        raise JobCancelledError(f"job {job_id!r} was cancelled")
    match ended.outcome:
        case Completed(result):
            return shaped(returns, None if result is None else queue.result_serde.deserialize(result), "the result")
        case Failing(error, _, cause) | Failed(error, cause):
            raise cause or PgjqError(f"{error.type}: {error.message}")
        case Snoozed(delay):
            raise Snooze(delay)
        case _:
            raise PgjqError(f"job {job_id!r} did not run: it was released")
