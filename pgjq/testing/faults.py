"""Faults of workers, for tests: a crash between two steps, and a lease that is lost."""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, get_args, overload

from pgjq.blocking import drive
from pgjq.errors import ValidationError
from pgjq.lease import explain
from pgjq.outcome import Failed, Failing
from pgjq.storage.base import Settlement
from pgjq.worker.job import AsyncJob, Job

if TYPE_CHECKING:
    from collections.abc import Coroutine, Generator

    from pgjq.blocking import Mode
    from pgjq.storage.base import Operations
    from pgjq.worker.run import Run

Step = Literal["claim", "handler", "commit"]


class WorkerCrash(Exception):
    """A simulated crash: `drain` ends and returns; `run` raises it, `crash_after` swallows it.

    `ran` is 1 if the handler had run.
    """

    def __init__(self, message: str, ran: int) -> None:
        super().__init__(message)
        self.ran = ran


class Crash:
    """A crash to come. `job` is the job that was lost with the worker, once it has crashed."""

    def __init__(self, step: Step) -> None:
        self.step = step
        self.job: Any = None


_crash: ContextVar[Crash | None] = ContextVar("pgjq crash", default=None)


@contextmanager
def crash_after(step: Step) -> Generator[Crash]:
    """Crash the workers that `drain` and `run` simulate in this block, after a step.

    `"claim"`: the job is claimed, and its handler was not called. `"handler"`: the handler has returned or raised, and
    nothing of that was recorded. `"commit"`: the outcome is recorded, and the worker does not know. The lease stays, as
    after a killed process: advance the clock past it, or pass the block's `job` to `lose_lease`, and the job runs
    again. AssertionError if nothing crashed.
    """
    if step not in get_args(Step):
        raise ValidationError(f"crash_after takes one of {', '.join(get_args(Step))}, not {step!r:.80}")
    crash = Crash(step)
    token = _crash.set(crash)
    try:
        yield crash
    except WorkerCrash:
        pass
    finally:
        _crash.reset(token)
    if crash.job is None:
        raise AssertionError(f"nothing crashed after its {step}: no job ran in this block, by drain() or run()")


def maybe_crash(step: Step, run: Run, ops: Operations, mode: Mode) -> None:
    """Raise WorkerCrash if this is the step to crash after."""
    crash = _crash.get()
    if crash is not None and crash.step == step:
        payload = run.consumer.payload_serde.deserialize(run.claimed.payload)
        crash.job = (Job if mode == "sync" else AsyncJob)(run, payload, None, ops)
        raise WorkerCrash(f"crashed after the {step} of job {run.claimed.lease.id!r}", int(step != "claim"))


@overload
def lose_lease(job: Job[Any]) -> None: ...
@overload
def lose_lease(job: AsyncJob[Any]) -> Coroutine[Any, Any, None]: ...
def lose_lease(job: Job[Any] | AsyncJob[Any]) -> Coroutine[Any, Any, None] | None:
    """Take the lease of a running job away, as a reaper does after a silence of its worker.

    The job may be claimed again at once, or has failed if it has no attempt left. What the first run does from now on
    is refused: its heartbeat, checkpoint, `job.transaction()` and outcome. Await it for an `AsyncJob`.
    """
    if isinstance(job, AsyncJob):
        return _lose(job)
    if isinstance(job, Job):  # pyright: ignore[reportUnnecessaryIsInstance]
        return drive(_lose(job))
    raise ValidationError(f"lose_lease takes the job that a handler gets, or the job of crash_after, not {job!r:.80}")


async def _lose(job: Job[Any] | AsyncJob[Any]) -> None:
    ops, run = job._ops, job._run  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    claimed, error = run.claimed, explain("lease", run.worker)
    outcome = Failed(error) if claimed.attempts >= claimed.max_attempts else Failing(error)
    (answer,) = await ops.settle([Settlement(claimed.lease, outcome)])
    if answer.state is None:
        raise AssertionError(f"job {job.id!r} has no lease to lose: its run has ended, or the lease was lost before")
