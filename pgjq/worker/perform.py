"""Call a run's handler, and return its outcome; also what `pgjq.testing` calls."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

from pgjq.outcome import Completed, Outcome, Released, fail
from pgjq.serde import serialize_result
from pgjq.worker.abort_signal import SHUTDOWN
from pgjq.worker.current_job import set_current_job
from pgjq.worker.job import AsyncJob, Job

if TYPE_CHECKING:
    from pgjq.storage.base import Operations
    from pgjq.worker.run import Run


def perform(run: Run, ops: Operations) -> Outcome:
    """Call a plain function; `ops` are sync."""
    try:
        job = Job(run, *_decoded(run), ops)
    except BaseException as error:  # noqa: BLE001
        return fail(error)
    set_current_job(job)
    try:
        result = run.target.call(job)
    except BaseException as error:  # noqa: BLE001  (a thread that dies would lose its slot)
        return run.decide(error, random.random())  # noqa: S311
    return _completed(run, result)


async def perform_async(run: Run, ops: Operations, loop: asyncio.AbstractEventLoop) -> Outcome:
    """Await a coroutine function on a loop."""
    try:
        job = AsyncJob(run, *_decoded(run), ops)
    except BaseException as error:  # noqa: BLE001
        return fail(error)
    set_current_job(job)
    try:
        return _completed(run, await run.target.call(job))
    except asyncio.CancelledError as error:
        # At shutdown the run is released; a lost lease costs the attempt, if the storage accepts the outcome.
        return Released() if run.abort_reason == SHUTDOWN else run.decide(error, random.random())  # noqa: S311
    except BaseException as error:
        if loop.is_closed():
            raise  # Python throws GeneratorExit into a coroutine whose loop is gone.
        return run.decide(error, random.random())  # noqa: S311


def _completed(run: Run, result: Any) -> Outcome:
    """Serialise the result; an error fails the job permanently: its work must not be repeated."""
    try:
        return Completed(serialize_result(run.consumer.result_serde, result, run.claimed.lease.id))
    except BaseException as error:  # noqa: BLE001
        return fail(error)


def _decoded(run: Run) -> tuple[Any, Any]:
    """Read a job's payload and checkpoint; unreadable bytes fail only this job."""
    serde, claimed = run.consumer.payload_serde, run.claimed
    checkpoint = None if claimed.checkpoint is None else serde.deserialize(claimed.checkpoint)
    return serde.deserialize(claimed.payload), checkpoint
