"""Jobs as Django's TaskResults.

| job | TaskResult |
|---|---|
| `queued`, `failing` | READY: it will run, again or for the first time |
| `processing` | RUNNING |
| `completed` | SUCCESSFUL |
| `failed`, `cancelled` | FAILED; a cancelled one has a JobCancelledError as its last error |

Runs that do not count as attempts (snoozed, released) are in neither `attempts` nor `worker_ids`.
"""

# pyright: basic

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from django.utils.module_loading import import_string

from pgjq.django.tasks_framework import Task, TaskError, TaskResult, TaskResultDoesNotExist, TaskResultStatus

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.job import Attempt, JobError, JobStatus

STATUSES: Final = {
    "queued": TaskResultStatus.READY,
    "failing": TaskResultStatus.READY,
    "processing": TaskResultStatus.RUNNING,
    "completed": TaskResultStatus.SUCCESSFUL,
    "failed": TaskResultStatus.FAILED,
    "cancelled": TaskResultStatus.FAILED,
}
UNCOUNTED: Final = frozenset(("released", "snoozed"))
# The errors that pgjq records by a name that is not a class.
CLASSES: Final = {"Stalled": "pgjq.errors.LeaseLostError"}
UNKNOWN: Final = "unknown"  # Of a run in the middle of a history that pgjq has shortened.


def result_id(queue: str, job_id: str) -> str:
    """Return the id of a result: unique in all queues, because it names the queue."""
    return f"{quote(queue, safe='')}:{job_id}"


def parse_result_id(value: str) -> tuple[str, str]:
    """Return the queue and the job's id."""
    queue, colon, job_id = str(value).partition(":")
    if not (queue and colon and job_id):
        raise TaskResultDoesNotExist(value)
    return unquote(queue), job_id


def find_task(path: Any) -> Any:
    """Return the Django task at a dotted path, or None if there is none."""
    try:
        found = import_string(path)
    except (ImportError, AttributeError, TypeError, ValueError):
        return None
    return found if isinstance(found, Task) else None


def to_result(alias: str, status: JobStatus, payload: Any, attempts: Sequence[Attempt]) -> Any:
    """Return a job as a TaskResult; TaskResultDoesNotExist if it is no job of a Django task."""
    path = payload.get("task") if isinstance(payload, dict) else None
    task = find_task(path)
    if task is None:
        raise TaskResultDoesNotExist(
            f"{result_id(status.queue, status.id)} is a job of {path!r}, which is no task here"
        )
    deferred = status.run_at is not None and status.run_at > status.created_at
    counted = [attempt for attempt in attempts if attempt.outcome not in UNCOUNTED]
    result = make_result(
        task.using(priority=status.priority, queue_name=status.queue, backend=alias, run_after=status.run_at)
        if deferred
        else task.using(priority=status.priority, queue_name=status.queue, backend=alias),
        result_id(status.queue, status.id),
        payload,
        status=STATUSES[status.state],
        enqueued_at=status.created_at,
        started_at=counted[0].started_at if counted else status.started_at,
        last_attempted_at=status.started_at or (counted[-1].started_at if counted else None),
        finished_at=status.finished_at,
        errors=_errors(status, counted),
        worker_ids=_workers(status, counted),
    )
    object.__setattr__(result, "_return_value", status.result)
    return result


def make_result(task: Any, result_id: str, payload: Any, **values: Any) -> Any:
    """Make a TaskResult of a call; what is not given has not happened yet."""
    unset = {"enqueued_at": None, "started_at": None, "finished_at": None, "last_attempted_at": None}
    lists: dict[str, Any] = {"errors": [], "worker_ids": []}
    calls = {"args": payload.get("args", []), "kwargs": payload.get("kwargs", {})}
    return TaskResult(task=task, id=result_id, backend=task.backend, **calls, **(unset | lists | values))


def _errors(status: JobStatus, counted: Sequence[Attempt]) -> list[Any]:
    errors = [to_error(attempt.error) for attempt in counted if attempt.error is not None]
    if status.state == "cancelled":
        errors.append(TaskError(exception_class_path="pgjq.errors.JobCancelledError", traceback="cancelled"))
    elif status.state == "failed" and not errors and status.error is not None:
        errors.append(to_error(status.error))
    return errors


def to_error(error: JobError) -> Any:
    """Return a recorded error as Django's TaskError."""
    path = CLASSES.get(error.type, error.type if "." in error.type else f"builtins.{error.type}")
    return TaskError(exception_class_path=path, traceback=error.traceback or f"{error.type}: {error.message}")


def _workers(status: JobStatus, counted: Sequence[Attempt]) -> list[str]:
    workers = [attempt.worker or UNKNOWN for attempt in counted]
    if status.state == "processing":
        workers.append(status.worker or UNKNOWN)
    missing = status.attempts - len(workers)
    return [*workers[:1], *[UNKNOWN] * missing, *workers[1:]]
