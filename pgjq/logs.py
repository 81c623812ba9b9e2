"""The running job on log lines: for `logging` and for structlog.

Inside a handler or task, also in threads of `asyncio.to_thread`, every line gets `queue`, `job_id`, `task` and
`attempt`. A line that has one of these fields keeps it.

    handler.addFilter(pgjq.logs.JobContextFilter())                 # logging; on a handler, not on a logger
    structlog.configure(processors=[pgjq.logs.add_job_context, …])  # structlog
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

from pgjq.worker.current_job import running_job

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["JobContextFilter", "add_job_context"]

FIELDS: Final = ("queue", "job_id", "task", "attempt")


class JobContextFilter(logging.Filter):
    """Adds the fields of the running job to each record; outside of a run they are None."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the fields, and let the record pass."""
        context = job_context()
        for field in FIELDS:
            if getattr(record, field, None) is None:
                setattr(record, field, context.get(field))
        return True


def add_job_context(_logger: Any, _method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Add the fields of the running job to a structlog event; outside of a run add nothing."""
    for field, value in job_context().items():
        event.setdefault(field, value)
    return event


def job_context() -> dict[str, Any]:
    """Return the fields of the running job, `task` only if it has one; nothing outside of a run."""
    job = running_job()
    if job is None:
        return {}
    context = {"queue": job.queue, "job_id": job.id, "attempt": job.attempts}
    return context if job.task is None else {**context, "task": job.task}
