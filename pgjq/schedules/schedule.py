"""A schedule: what its creator defines, and what its ticks have come to.

A schedule without `next_run_at` has not been planned yet: SQL has created or changed it, and the next worker computes
its first run, or records in `error` why it can have none. `due_at` is when a worker must look at it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast, get_args

from pgjq.errors import ValidationError
from pgjq.job_settings import new_job, settings
from pgjq.options import (
    DEFAULT_SETTINGS,
    QUEUE_LENGTH,
    Settings,
    check_datetime,
    check_headers,
    check_queue,
    check_seconds,
)
from pgjq.schedules.cron import parse
from pgjq.schedules.times import BoundedTimes, CronTimes, IntervalTimes, Times
from pgjq.schedules.zone import find_zone

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pgjq.declared_options import EnqueueOptions
    from pgjq.options import Headers

Missed = Literal["skip", "once", "all"]
Overlap = Literal["allow", "skip", "queue_one"]
TickOutcome = Literal[
    "made", "triggered", "backfilled", "skipped", "overlapped", "paused", "too_late", "refused", "invalid"
]
SHORTEST_INTERVAL: Final = 1.0
TRACES: Final = 100  # Ticks of a schedule that a storage keeps.
AT_MOST: Final = 1000  # Jobs that one tick or one backfill makes.
# What `update_schedule` changes, beside the options of its jobs.
TIME: Final = ("cron", "every", "timezone", "start_at", "end_at")
OWN_VALUES: Final = (*TIME, "missed", "overlap", "jitter", "starting_deadline")
CHANGEABLE: Final = ("queue", "payload", *OWN_VALUES)
NOT_OF_SCHEDULES: Final = ("run_at", "delay")


@dataclass(frozen=True, slots=True)
class Schedule:
    """A schedule as a storage keeps it. `revision` grows with every change and every tick."""

    name: str
    queue: str
    payload: bytes
    created_at: datetime
    changed_at: datetime  # An interval without `start_at` counts from here.
    cron: str | None = None
    every: float | None = None
    timezone: str = "UTC"
    start_at: datetime | None = None
    end_at: datetime | None = None
    missed: Missed = "once"
    overlap: Overlap = "allow"
    jitter: float = 0.0
    starting_deadline: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    paused: bool = False
    next_run_at: datetime | None = None
    due_at: datetime | None = None
    last_run_at: datetime | None = None
    last_job_id: str | None = None
    revision: int = 0
    error: str | None = None
    task: str | None = None  # That its payload names.

    @property
    def settings(self) -> Settings:
        """The resolved options of its jobs."""
        return (
            settings(new_job(None, None, cast("EnqueueOptions", dict(self.options))))
            if self.options
            else DEFAULT_SETTINGS
        )

    @property
    def headers(self) -> Headers | None:
        """The headers of its jobs."""
        headers = self.options.get("headers")
        return None if headers is None else check_headers(headers)

    def times(self) -> Times:
        """Return its calendar; ValidationError if it has none."""
        if (self.cron is None) == (self.every is None):
            raise ValidationError("a schedule needs cron or every, and not both")
        zone = find_zone(self.timezone)
        if self.cron is not None:
            return BoundedTimes(CronTimes(parse(self.cron), zone), self.start_at, self.end_at)
        anchor = self.start_at or self.changed_at.replace(microsecond=0)
        every = timedelta(seconds=check_seconds("every", self.every, at_least=SHORTEST_INTERVAL))
        return BoundedTimes(IntervalTimes(anchor, every), self.start_at, self.end_at)

    def first_run(self, now: datetime) -> datetime | None:
        """Return its first run after a time; also at that time, if it starts then."""
        starts_now = self.start_at is not None and self.start_at == now
        return self.times().after(now - timedelta(microseconds=1) if starts_now else now)


class ScheduleTick(NamedTuple):
    """One tick: when it was due and handled, and what it made or why it made nothing."""

    tick: datetime
    at: datetime
    outcome: TickOutcome
    job_id: str | None = None
    detail: str | None = None


@dataclass(frozen=True, slots=True)
class ScheduleInfo:
    """A schedule, as `get_schedule` returns it."""

    name: str
    queue: str
    payload: Any
    cron: str | None
    every: float | None
    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    missed: Missed
    overlap: Overlap
    jitter: float
    starting_deadline: float | None
    options: Mapping[str, Any]
    paused: bool
    created_at: datetime
    next_run_at: datetime | None
    last_run_at: datetime | None
    last_job_id: str | None
    error: str | None = None
    """Why it has no next run, if its definition is invalid: only SQL can store such a one."""


def info(schedule: Schedule, payload: Any) -> ScheduleInfo:
    """Return a schedule with its payload read."""
    values = {f.name: getattr(schedule, f.name) for f in fields(ScheduleInfo)}
    return ScheduleInfo(**values | {"payload": payload})


def tick_name(tick: datetime) -> str:
    """Return a tick as it stands in ids: `2026-11-17T03:00:00Z`."""
    return tick.astimezone(UTC).replace(tzinfo=None).isoformat() + "Z"


def check_name(name: Any) -> str:
    """Return the schedule's name if it is valid: it follows the rules of a queue's."""
    if not isinstance(name, str) or not 0 < len(name) <= QUEUE_LENGTH:
        raise ValidationError(f"a schedule's name must be a str of 1 to {QUEUE_LENGTH} characters, not {name!r:.80}")
    try:
        return check_queue(name)
    except ValidationError as error:
        raise ValidationError("a schedule's name must not hold control characters or lone surrogates") from error


class Payload(NamedTuple):
    """A payload as bytes, and the task that it names."""

    data: bytes
    task: str | None


class Declared(NamedTuple):
    """A schedule that code declares: the arguments of `create_schedule`."""

    name: str
    queue: str
    payload: Payload
    values: Mapping[str, Any]


def define(name: Any, queue: Any, payload: Payload, now: datetime, values: Mapping[str, Any]) -> Schedule:
    """Check the arguments of `create_schedule`, and plan the first run."""
    new = Schedule(check_name(name), check_queue(queue), payload.data, now, now, task=payload.task, **_checked(values))
    return plan_anew(new, now)


def change(schedule: Schedule, payload: Payload | None, now: datetime, values: Mapping[str, Any]) -> Schedule:
    """Apply the changes of `update_schedule`; None removes an option.

    A changed time counts from now.
    """
    values = dict(values)
    if "cron" in values and values["cron"] is not None:
        values.setdefault("every", None)
    elif "every" in values and values["every"] is not None:
        values.setdefault("cron", None)
    checked = _checked(values)
    options = {**schedule.options, **checked.pop("options", {})}
    options = {name: value for name, value in options.items() if value is not None}
    new = replace(schedule, options=options, **checked)
    if payload is not None:
        new = replace(new, payload=payload.data, task=payload.task)
    _ = new.settings
    if all(getattr(new, name) == getattr(schedule, name) for name in TIME) and new.error is None:
        return new
    return plan_anew(replace(new, changed_at=now), now)


def resume(schedule: Schedule, now: datetime) -> Schedule:
    """End a pause: the runs in between are not made up for."""
    following = schedule.first_run(now)
    return replace(schedule, paused=False, next_run_at=following, due_at=following)


def plan_anew(schedule: Schedule, now: datetime) -> Schedule:
    """Compute the first run after a change; ValidationError if there is no calendar."""
    following = schedule.first_run(now)
    return replace(schedule, next_run_at=following, due_at=following, error=None)


def same_definition(one: Schedule, other: Schedule) -> bool:
    """Return whether two schedules are defined alike, whatever their ticks came to."""
    names = (*CHANGEABLE, "options")
    return all(getattr(one, name) == getattr(other, name) for name in names)


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Check each argument by itself; unknown ones are options of the jobs."""
    checked: dict[str, Any] = {}
    options: dict[str, Any] = {}
    for name, value in values.items():
        if name in CHANGEABLE:
            checked[name] = _CHECKS[name](value)
        elif name in NOT_OF_SCHEDULES:
            raise ValidationError(
                f"a schedule's jobs run at its ticks, so {name} does not apply; use jitter to spread them"
            )
        else:
            options[name] = value.total_seconds() if isinstance(value, timedelta) else value
    if options:
        given = {name: value for name, value in options.items() if value is not None}
        job = new_job(None, None, cast("EnqueueOptions", given))
        settings(job)
        if job.headers is not None:
            options["headers"] = check_headers(job.headers)
        checked["options"] = options
    return checked


def _check_cron(value: Any) -> str | None:
    return None if value is None else parse(value).text


def _check_every(value: Any) -> float | None:
    return None if value is None else check_seconds("every", value, at_least=SHORTEST_INTERVAL)


def _check_timezone(value: Any) -> str:
    return find_zone(value).key


def _check_missed(value: Any) -> Missed:
    if value not in get_args(Missed):
        raise ValidationError(f"missed must be one of {', '.join(get_args(Missed))}, not {value!r:.80}")
    return value


def _check_overlap(value: Any) -> Overlap:
    if value not in get_args(Overlap):
        raise ValidationError(f"overlap must be one of {', '.join(get_args(Overlap))}, not {value!r:.80}")
    return value


def _check_moment(name: str) -> Callable[[Any], datetime | None]:
    return lambda value: None if value is None else check_datetime(name, value)


def _check_jitter(value: Any) -> float:
    return check_seconds("jitter", value, at_least=0)


def _check_deadline(value: Any) -> float | None:
    return None if value is None else check_seconds("starting_deadline", value, above=0)


_CHECKS: Final[dict[str, Callable[[Any], Any]]] = {
    "queue": check_queue,
    "cron": _check_cron,
    "every": _check_every,
    "timezone": _check_timezone,
    "start_at": _check_moment("start_at"),
    "end_at": _check_moment("end_at"),
    "missed": _check_missed,
    "overlap": _check_overlap,
    "jitter": _check_jitter,
    "starting_deadline": _check_deadline,
}
