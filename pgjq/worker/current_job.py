"""The job that is being processed here, as a context variable: threads and tasks of a run inherit it."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

from pgjq.errors import PgjqError

if TYPE_CHECKING:
    from pgjq.worker.job import AsyncJob, Job

_current: ContextVar[Job | AsyncJob] = ContextVar("pgjq_job")

set_current_job = _current.set


def current_job() -> Job | AsyncJob:
    """Return the job that the calling handler or task processes, also inside `asyncio.to_thread`.

    A plain function gets a `Job`, a coroutine an `AsyncJob`. PgjqError outside of a run.
    """
    try:
        return _current.get()
    except LookupError:
        raise PgjqError("no job is being processed here: current_job() works in a handler or task") from None
