"""Types of the public contract: job states, new jobs, statuses, queues, workers and events.

A job is `queued → processing → completed | failing | failed | cancelled`; `failing → processing`;
`queued | failing → cancelled`; `failed → queued`. Nothing here does I/O or looks at a clock.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, Literal, NamedTuple, cast

from pgjq.convert import plain
from pgjq.errors import ValidationError
from pgjq.type_variables import Payload_co, Result_co

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime, timedelta

    from pgjq.policy import PolicyName
    from pgjq.schedules.schedule import TickOutcome

State = Literal["queued", "processing", "failing", "completed", "failed", "cancelled"]
JobEventName = Literal["queued", "processing", "failing", "completed", "failed", "cancelled", "stalled"]
EventName = Literal[JobEventName, "warning", "tick"]
LeadershipName = Literal["leadership_acquired", "leadership_lost"]
Action = Literal["recovered", "failed", "cancelled"]
Reason = Literal["lease", "expired"]
WarningReason = Literal["unknown_task", "newer_version", "no_handler"]
AttemptOutcome = Literal["completed", "failed", "stalled", "released", "snoozed", "expired", "cancelled", "lease_lost"]

STATES: tuple[State, ...] = ("queued", "processing", "failing", "completed", "failed", "cancelled")
ATTEMPTS_KEPT: Final = 20  # Of each job: the first, and the last nineteen.
LIVE: frozenset[State] = frozenset(("queued", "processing", "failing"))
TASK_LENGTH: Final = 128
_CONTROL: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\ud800-\\udfff]")


@dataclass(frozen=True, slots=True)
class NewJob(Generic[Payload_co]):
    """A job to enqueue, with the options of `enqueue`. With `id=None` pgjq generates the id."""

    id: str | None
    payload: Payload_co
    backoff_by_default: ClassVar[bool] = False  # Only jobs of tasks are retried with backoff by default.
    _: KW_ONLY
    max_attempts: int | None = None
    result_ttl: float | timedelta | None = None
    priority: int = 0
    run_at: datetime | None = None
    delay: float | timedelta | None = None
    singleton_key: str | None = None
    on_failed: Literal["enqueue", "duplicate"] = "enqueue"
    retry_limit: int | None = None
    retry_delay: float | timedelta | None = None
    retry_backoff: bool | None = None
    retry_delay_max: float | timedelta | None = None
    expire_in_seconds: float | timedelta | None = None
    heartbeat_seconds: float | timedelta | None = None
    retention_seconds: float | timedelta | None = None
    delete_after_seconds: float | timedelta | None = None
    dead_letter: str | None = None
    singleton_seconds: float | timedelta | None = None
    singleton_next_slot: bool = False
    debounce: float | timedelta | None = None
    headers: Mapping[str, str] | None = None


class EnqueueResult(NamedTuple, Generic[Result_co]):
    """Result of an enqueue. A duplicate is no error. A tuple, because a batch makes a million."""

    status: Literal["queued", "duplicate", "completed"]
    id: str
    existing_state: State | None = None
    result: Result_co | None = None


@dataclass(frozen=True, slots=True)
class CancelResult:
    """Result of a cancel."""

    status: Literal["cancelled", "not_found", "processing", "completed", "failed"]


@dataclass(frozen=True, slots=True)
class JobError:
    """Why a run failed, as text."""

    type: str
    message: str
    traceback: str | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a job that has ended.

    `number` counts the job's runs from 1, including those whose attempts do not count. `lease_lost` is the outcome of a
    run that was taken from its worker by an operator; a run that a reaper takes back is `stalled` or `expired`.
    """

    number: int
    worker: str | None
    started_at: datetime
    ended_at: datetime
    outcome: AttemptOutcome
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class JobSource:
    """Source of a dead letter: the failed job, its number of attempts, and its error."""

    queue: str
    id: str
    attempts: int
    error: JobError | None = None


@dataclass(frozen=True, slots=True)
class JobStatus(Generic[Result_co]):
    """The state and the record of one job."""

    id: str
    queue: str
    state: State
    created_at: datetime
    attempts: int
    max_attempts: int
    result: Result_co | None = None
    error: JobError | None = None
    priority: int = 0
    run_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    locked_until: datetime | None = None
    worker: str | None = None
    lease: int = 0
    stalled: int = 0
    singleton_key: str | None = None
    stalled_on: tuple[str, ...] = ()
    """The workers that had it when it stalled, oldest first: a job that takes its workers down shows here."""
    source: JobSource | None = None
    task: str | None = None
    """The name of the task that its payload names, if any."""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class QueueStats:
    """Number of a queue's jobs by state, at one moment; `queued = ready + deferred`."""

    name: str
    queued: int = 0
    deferred: int = 0
    ready: int = 0
    processing: int = 0
    failing: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    total: int = 0
    oldest_ready_age: float | None = None


@dataclass(frozen=True, slots=True)
class QueueInfo:
    """A queue's definition with its effective values, and its last counted statistics."""

    name: str
    policy: PolicyName
    partition: bool
    dead_letter: str | None
    warning_queue_size: int | None
    retry_limit: int
    retry_delay: float
    retry_backoff: bool
    retry_delay_max: float | None
    heartbeat_seconds: float | None
    expire_in_seconds: float
    retention_seconds: float
    delete_after_seconds: float
    paused: bool
    created_at: datetime
    stats: QueueStats | None = None


@dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker's record, for monitoring. No lease depends on it.

    A worker is `alive` until it has been silent for three of its heartbeat intervals. A stopped worker is not listed; a
    killed one is, for a day.
    """

    id: str
    queues: tuple[str, ...]
    started_at: datetime
    last_seen: datetime
    running: int
    alive: bool


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job or a reaper; fields that do not apply are None.

    A `warning` about a queue has no id. One about a job that no task of a worker fits has its id, `task` and `reason`.
    A `tick` is about a schedule: its `id` is the name and the tick, its `reason` the outcome.
    """

    name: EventName | LeadershipName
    queue: str
    id: str
    at: datetime
    attempts: int | None = None
    result: Any = None
    error: JobError | BaseException | None = None
    count: int | None = None
    action: Action | None = None
    reason: Reason | WarningReason | TickOutcome | None = None
    task: str | None = None


def task_name(payload: Any) -> str | None:
    """Return the name of the task that a payload names: the text under `task` of a dict."""
    if type(payload) is not dict:
        return None
    name = cast("dict[Any, Any]", payload).get("task")
    return name if type(name) is str and is_task_name(name) else None


def is_task_name(name: str) -> bool:
    """Return whether every storage can store a task's name: short, no control characters."""
    return 0 < len(name) <= TASK_LENGTH and (name.isprintable() or _CONTROL.search(name) is None)


def content_id(payload: Any) -> str:
    """Derive an id from a payload: the first 16 hex digits of the SHA-256 of its canonical JSON.

    Canonical JSON is compact UTF-8 with sorted keys; richer types are written as `JsonSerde` writes them.
    """
    try:
        text = json.dumps(
            payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=plain
        ).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"this payload has no canonical JSON for an id: {error}") from error
    return hashlib.sha256(text).hexdigest()[:16]
