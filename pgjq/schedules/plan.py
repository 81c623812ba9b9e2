"""Plan the ticks of a due schedule from its definition, its `next_run_at` and the time.

* The ticks from `next_run_at` to now are due: usually one, more if no worker has looked for a while.
* `missed` says which of them make a job. `"skip"`: each that is at most `starting_deadline` late (60 s unless set);
  `"once"`: the last one, however late; `"all"`: each, the last 1,000 of them.
* A paused schedule makes none, and moves on: so a pause builds no backlog.

The storage applies a plan if the schedule has not changed meanwhile, decides about `overlap` in the same commit, and
keeps a `ScheduleTick` for each tick.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal, NamedTuple

from pgjq.errors import ValidationError
from pgjq.schedules.schedule import AT_MOST, TRACES, Schedule, TickOutcome, tick_name
from pgjq.schedules.times import MICROSECOND, Times

DEADLINE: Final = 60.0  # Of `missed="skip"`.


class PlannedTick(NamedTuple):
    """A tick of a plan. Without an outcome it makes a job, at once or at `run_at`."""

    tick: datetime
    run_at: datetime | None = None
    outcome: TickOutcome | None = None
    detail: str | None = None
    suffix: str = ""  # Of the job's id, behind the tick.


@dataclass(frozen=True, slots=True)
class Plan:
    """The ticks of a schedule that are due, and when the next one is.

    A `forced` plan was asked for by a caller: it ignores `overlap`, and leaves the next run as it is.
    """

    schedule: Schedule
    ticks: tuple[PlannedTick, ...]
    next_run_at: datetime | None
    error: str | None = None
    forced: Literal["triggered", "backfilled"] | None = None


def plan(schedule: Schedule, now: datetime) -> Plan:
    """Decide about the ticks of a schedule that are due."""
    try:
        _ = schedule.settings, schedule.headers
        times = schedule.times()
        if schedule.next_run_at is None:
            return Plan(schedule, (), schedule.first_run(schedule.due_at or schedule.changed_at))
    except ValidationError as error:
        refused = PlannedTick(now, outcome="invalid", detail=str(error))
        return Plan(schedule, (refused,), None, str(error))
    return Plan(schedule, tuple(_decide(schedule, _due(schedule, times, now), now)), times.after(now))


def next_runs(schedule: Schedule, count: int, now: datetime) -> list[datetime]:
    """Return the coming runs of a schedule."""
    times, found = schedule.times(), list[datetime]()
    following = schedule.next_run_at or schedule.first_run(schedule.changed_at)
    if following is not None and following <= now:
        following = times.after(now)
    while following is not None and len(found) < count:
        found.append(following)
        following = times.after(following)
    return found


def runs_between(schedule: Schedule, since: datetime, until: datetime) -> list[datetime]:
    """Return a schedule's runs in `[since, until)`; ValidationError if more than 1,000."""
    times, found = schedule.times(), list[datetime]()
    following = times.after(since - MICROSECOND)
    while following is not None and following < until:
        if len(found) == AT_MOST:
            raise ValidationError(f"a backfill makes at most {AT_MOST} jobs; choose a shorter time")
        found.append(following)
        following = times.after(following)
    return found


def spread(schedule: Schedule, tick: datetime) -> timedelta:
    """Return how much later than its tick a job runs: 0 to `jitter`, the same on every worker."""
    if not schedule.jitter:
        return timedelta()
    digest = hashlib.sha256(f"{schedule.name}@{tick_name(tick)}".encode()).digest()
    return timedelta(seconds=schedule.jitter * int.from_bytes(digest[:6]) / 2**48)


def _due(schedule: Schedule, times: Times, now: datetime) -> list[datetime]:
    """List the last due ticks, oldest first: those that may make a job or are recorded."""
    first, found = schedule.next_run_at, list[datetime]()
    most = TRACES + 1 if schedule.missed == "once" or schedule.paused else AT_MOST
    moment = times.before(now + MICROSECOND)
    while moment is not None and first is not None and moment >= first and len(found) < most:
        found.append(moment)
        moment = times.before(moment)
    # A tick that newer rules of its time zone have moved is made as it was planned.
    return found[::-1] or ([first] if first is not None and first <= now else [])


def _decide(schedule: Schedule, due: list[datetime], now: datetime) -> list[PlannedTick]:
    if schedule.paused:
        return [PlannedTick(tick, outcome="paused") for tick in due[-TRACES:]]
    deadline = timedelta(seconds=DEADLINE if schedule.starting_deadline is None else schedule.starting_deadline)
    late = [tick for tick in due if now - tick > deadline] if schedule.missed == "skip" else []
    rest = due[len(late) :]
    planned = [PlannedTick(tick, outcome="too_late", detail=_lateness(now - tick)) for tick in late[-TRACES:]]
    if schedule.missed == "once" and rest:
        covered = f"missed; {tick_name(rest[-1])} runs for it"
        planned += [PlannedTick(tick, outcome="skipped", detail=covered) for tick in rest[:-1][-TRACES:]]
        rest = rest[-1:]
    return planned + [PlannedTick(tick, _run_at(schedule, tick, now)) for tick in rest]


def _run_at(schedule: Schedule, tick: datetime, now: datetime) -> datetime | None:
    at = tick + spread(schedule, tick)
    return at if at > now else None


def _lateness(late: timedelta) -> str:
    return f"{late.total_seconds():.0f} s late"
