"""Convert rows to values."""

from __future__ import annotations

import json
from dataclasses import fields
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast

from pgjq.definition import Definition, in_force
from pgjq.job import STATES, Attempt, Event, JobError, JobSource, JobStatus, QueueInfo, QueueStats, WorkerInfo
from pgjq.options import LONGEST, NO_OPTIONS, JobOptions
from pgjq.policy import Policy
from pgjq.storage.base import Answer, Claimed, Lease, Reaped

if TYPE_CHECKING:
    from collections.abc import Sequence

_OPTIONS = {field.name for field in fields(JobOptions)}
# Jobs of tasks have these unless they set others.
TASK_OPTIONS = JobOptions(retry_backoff=True)
_TASK_OPTIONS = TASK_OPTIONS.set_values()
_KINDS = {"retry_backoff": bool, "dead_letter": str}  # All others are seconds.
# The columns of the view `jobs`, in order.
_JOBS = [
    "seq",
    "queue_id",
    "queue",
    "id",
    "state",
    "created_at",
    "attempts",
    "max_attempts",
    "priority",
    "run_at",
    "started_at",
    "finished_at",
    "locked_until",
    "worker",
    "lease",
    "stalled",
    "singleton_key",
    "result",
    "error",
    "stalled_on",
    "source",
    "task",
    "headers",
]


def claimed(found: Sequence[Sequence[Any]], queues: Sequence[str]) -> list[Claimed]:
    """Read the rows of claim.sql, in the order in which the jobs are to run."""
    order = {queue: place for place, queue in enumerate(queues)}
    return [_claimed(row) for row in sorted(found, key=lambda row: (order[row[0]], row[4], row[2]))]


def _claimed(row: Sequence[Any]) -> Claimed:
    queue, queue_id, seq, number, _, job_id, payload, attempts, most, created_at, lease, expire, *rest = row
    checkpoint, own, task, headers = rest[:4]
    return Claimed(
        Lease(queue, job_id, number, (queue_id, seq)),
        payload,
        attempts,
        most,
        created_at,
        lease,
        expire,
        checkpoint,
        job_options(own) if own else NO_OPTIONS,
        task,
        None if headers is None else _headers(headers).copy(),
    )


@lru_cache(maxsize=256)
def _headers(stored: str) -> dict[str, str]:
    """Parse headers; jobs of a batch often have the same ones."""
    return json.loads(stored)


def job_options(stored: Any) -> JobOptions:
    """Return the options stored with a job; ignore options of newer versions.

    Values of a wrong type or out of bounds are ignored, too: only rows written by hand contain them.
    """
    if stored == _TASK_OPTIONS:
        return TASK_OPTIONS
    values = cast("dict[str, Any]", stored if isinstance(stored, dict) else {})
    return JobOptions(**{name: value for name, value in values.items() if name in _OPTIONS and _is_valid(name, value)})


def _is_valid(name: str, value: Any) -> bool:
    kind = _KINDS.get(name)
    return isinstance(value, kind) if kind else isinstance(value, int | float) and 0 <= value <= LONGEST


def reaped(row: Sequence[Any]) -> Reaped:
    """Read a row of reap.sql."""
    return Reaped(*row)


def job_status(row: Sequence[Any]) -> JobStatus:
    """Read a row of the view `jobs`; the result stays bytes."""
    values: dict[str, Any] = dict(zip(_JOBS, row, strict=True))
    del values["seq"], values["queue_id"]
    values["error"] = read_error(values["error"])
    values["stalled_on"] = tuple(values["stalled_on"])
    if (source := values["source"]) is not None:
        values["source"] = JobSource(**source | {"error": read_error(source["error"])})
    return JobStatus(**values)


def attempt(row: Sequence[Any]) -> Attempt:
    """Read a row of attempts.sql."""
    number, worker, started_at, ended_at, outcome, error = row
    return Attempt(number, worker, started_at, ended_at, outcome, read_error(error))


_COUNTS = ("deferred", "ready", "processing", "failing", "completed", "failed", "cancelled")


def queue_info(row: Sequence[Any]) -> QueueInfo:
    """Read a row of queues.sql; a queue's number encodes its policy and partitioning."""
    number: int = row[1]
    name, _, paused, created_at, warning_queue_size, options, counted = row
    stats = None
    if counted is not None:
        counts = [counted.get(count, 0) for count in _COUNTS]
        stats = queue_stats(name, [*counts, counted["oldest_ready_age"]])
    definition = Definition(Policy.of_queue(number).value, number < 0, warning_queue_size, options or {})
    return in_force(name, definition, created_at=created_at, paused=paused, stats=stats)


def queue_stats(name: str, row: Sequence[Any]) -> QueueStats:
    """Read the row of stats.sql."""
    deferred, ready, processing, failing, completed, failed, cancelled, age = row
    return QueueStats(
        name=name,
        queued=deferred + ready,
        deferred=deferred,
        ready=ready,
        processing=processing,
        failing=failing,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        total=deferred + ready + processing + failing + completed + failed + cancelled,
        oldest_ready_age=age,
    )


def answer(row: Sequence[Any]) -> Answer:
    """Read a row of answer.sql."""
    _, state, attempts, max_attempts, result, error, expired = row
    return Answer(state_name(state), attempts, max_attempts, result, read_error(error), expired)


def worker_info(row: Sequence[Any]) -> WorkerInfo:
    """Read a row of workers.sql."""
    name, queues, started_at, last_seen, running, alive = row
    return WorkerInfo(name, tuple(queues), started_at, last_seen, running, alive)


def events(notification: str) -> list[Event]:
    """Read a notification of the events channel."""
    values: list[dict[str, Any]] = json.loads(notification)
    return [Event(at=datetime.fromtimestamp(event.pop("at"), UTC), **event) for event in values]


def write_error(error: JobError) -> str:
    """Return an error as JSON for `done.error` and `progress.error`, which cannot hold NUL."""
    text = json.dumps({"type": error.type, "message": error.message, "traceback": error.traceback}, ensure_ascii=False)
    return text.replace("\\u0000", "\\ufffd").encode(errors="replace").decode()


def read_error(text: str | None) -> JobError | None:
    """Parse the JSON that `write_error` wrote."""
    return None if text is None else JobError(**json.loads(text))


def state_name(number: int) -> Any:
    """Return the name of a state number."""
    return STATES[number]
