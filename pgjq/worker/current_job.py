"""The job of the current run, as a context variable that its threads and tasks inherit."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar, overload

from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from pgjq.worker.job import AsyncJob, Job

    J = TypeVar("J", Job[Any], AsyncJob[Any])

_current: ContextVar[Job | AsyncJob] = ContextVar("pgjq_job")

set_current_job = _current.set


def running_job() -> Job | AsyncJob | None:
    """Return the job that is being processed here, or None."""
    return _current.get(None)


@overload
def current_job() -> Job | AsyncJob: ...
@overload
def current_job(kind: type[J], /) -> J: ...
def current_job(kind: type[Any] | None = None, /) -> Any:
    """Return the job that the calling handler processes, also inside `asyncio.to_thread`.

    A plain function gets a `Job`, a coroutine an `AsyncJob`; `current_job(pgjq.Job)` tells type checkers which.
    PgjqError outside of a run, and if the job is of the other kind.
    """
    try:
        job = _current.get()
    except LookupError:
        raise PgjqError("no job is being processed here: current_job() works in a handler or task") from None
    if kind is not None and not isinstance(job, kind):
        raise PgjqError(f"the current job is of type {type(job).__name__}, not {kind.__name__}")
    return job
