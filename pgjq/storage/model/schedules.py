"""Schedules in a model: create, change and tick them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from functools import partial
from math import inf
from typing import TYPE_CHECKING, TypeVar

from pgjq.errors import PolicyError, QueueNotFoundError
from pgjq.options import Submission
from pgjq.schedules.schedule import ScheduleTick, tick_name
from pgjq.storage.model.admission import admit, check
from pgjq.storage.model.jobs import WAITING
from pgjq.storage.model.schedule_records import ScheduleChange, ScheduleRecord
from pgjq.storage.schedules import DueSchedules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pgjq.schedules.plan import Plan, PlannedTick
    from pgjq.schedules.schedule import Schedule
    from pgjq.storage.clock import StorageClock
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.subscribers import Subscribers

R = TypeVar("R")

KEPT_JOBS = 1000


def put(jobs: Jobs, schedule: Schedule, revision: int | None) -> bool:
    """Create a schedule, or replace one that still has a revision."""
    known = jobs.schedules.records.get(schedule.name)
    if (None if known is None else known.schedule.revision) != revision:
        return False
    record = known or ScheduleRecord(schedule)
    new = replace(schedule, revision=0 if revision is None else revision + 1)
    jobs.set_schedule(ScheduleChange(schedule.name, replace(record, schedule=new)))
    return True


def delete(jobs: Jobs, name: str) -> bool:
    """Delete a schedule."""
    if name not in jobs.schedules.records:
        return False
    jobs.set_schedule(ScheduleChange(name, None))
    return True


def tick(jobs: Jobs, plans: Sequence[Plan]) -> dict[str, list[ScheduleTick]]:
    """Apply plans to the schedules that have not changed since."""
    current = [(plan, jobs.schedules.records.get(plan.schedule.name)) for plan in plans]
    return {
        plan.schedule.name: _apply(jobs, plan, record)
        for plan, record in current
        if record is not None and record.schedule.revision == plan.schedule.revision
    }


def _apply(jobs: Jobs, plan: Plan, record: ScheduleRecord) -> list[ScheduleTick]:
    done: list[ScheduleTick] = []
    for planned in plan.ticks:
        record, one = _make(jobs, plan, record, planned)
        done.append(one)
    schedule = replace(record.schedule, revision=record.schedule.revision + 1)
    if plan.forced is None:
        schedule = replace(schedule, next_run_at=plan.next_run_at, due_at=plan.next_run_at, error=plan.error)
    jobs.set_schedule(ScheduleChange(schedule.name, replace(record, schedule=schedule), done))
    return done


def _make(jobs: Jobs, plan: Plan, record: ScheduleRecord, planned: PlannedTick) -> tuple[ScheduleRecord, ScheduleTick]:
    """Make the job of one tick, if nothing forbids it."""
    if planned.outcome is not None:
        return record, ScheduleTick(planned.tick, jobs.now, planned.outcome, None, planned.detail)
    if plan.forced is None and (why := _overlap(jobs, record)) is not None:
        return record, ScheduleTick(planned.tick, jobs.now, "overlapped", None, why)
    schedule = record.schedule
    job_id = f"{schedule.name}@{tick_name(planned.tick)}{planned.suffix}"
    settings = schedule.settings
    if planned.run_at is not None:
        settings = replace(settings, run_at=planned.run_at)
    job = Submission(job_id, schedule.payload, settings, schedule.task, schedule.headers)
    refusal = _admit(jobs, schedule.queue, job)
    if refusal is not None:
        return record, ScheduleTick(planned.tick, jobs.now, "refused", None, refusal)
    made = ScheduleTick(planned.tick, jobs.now, plan.forced or "made", job_id)
    schedule = replace(schedule, last_run_at=planned.tick, last_job_id=job_id)
    return ScheduleRecord(schedule, jobs.last_seq, _live(jobs, record)), made


def _live(jobs: Jobs, record: ScheduleRecord) -> tuple[int, ...]:
    """Return the numbers of a schedule's live jobs, with the one that was just made."""
    live = [seq for seq in record.jobs if seq in jobs.records and jobs.records[seq].finished_at is None]
    return (*live, jobs.last_seq)[-KEPT_JOBS:]


def _overlap(jobs: Jobs, record: ScheduleRecord) -> str | None:
    match record.schedule.overlap:
        case "skip" if record.last_seq is not None and _is_live(jobs, record.last_seq):
            return f"{record.schedule.last_job_id} is live"
        case "queue_one" if any(jobs.records[seq].state in WAITING for seq in record.jobs if seq in jobs.records):
            return "one of its jobs is queued or failing"
        case _:
            return None


def _is_live(jobs: Jobs, seq: int) -> bool:
    record = jobs.records.get(seq)
    return record is not None and (record.state in WAITING or record.state == "processing")


def _admit(jobs: Jobs, queue: str, job: Submission) -> str | None:
    """Add a job; return why the queue refuses it, or None."""
    try:
        check(jobs, queue, job)
    except (PolicyError, QueueNotFoundError) as error:
        return str(error)
    result = admit(jobs, queue, job)
    return None if result.status == "queued" else f"a job of this id or key is {result.existing_state}"


class ModelSchedules(ABC):
    """The part of `ModelOperations` that concerns schedules."""

    @abstractmethod
    async def _do(self, verb: Callable[[Jobs], R]) -> R:
        """Do an operation completely or not at all."""

    @abstractmethod
    async def _do_unsynced(self, verb: Callable[[Jobs], R]) -> R:
        """Do an operation that a crash may undo."""

    @abstractmethod
    def _recheck_interval(self, poll: float) -> float:
        """Return the seconds after which to check without a notification."""

    @property
    @abstractmethod
    def _subscribers(self) -> Subscribers: ...

    @property
    @abstractmethod
    def _clock(self) -> StorageClock: ...

    async def schedules(self, name: str | None = None) -> list[Schedule]:
        """See `ScheduleOperations`."""
        return await self._do(
            lambda jobs: [r.schedule for key, r in sorted(jobs.schedules.records.items()) if name in (None, key)]
        )

    async def storage_time(self) -> datetime:
        """See `ScheduleOperations`."""
        return await self._do_unsynced(lambda jobs: jobs.now)

    async def put_schedule(self, schedule: Schedule, *, revision: int | None) -> bool:
        """See `ScheduleOperations`."""
        return await self._do(partial(put, schedule=schedule, revision=revision))

    async def delete_schedule(self, name: str) -> bool:
        """See `ScheduleOperations`."""
        return await self._do(partial(delete, name=name))

    async def due_schedules(self, *, limit: int, poll: float) -> DueSchedules:
        """See `ScheduleOperations`."""
        now, found, first = await self._do_unsynced(
            lambda jobs: (jobs.now, jobs.schedules.due(jobs.now, limit), jobs.schedules.first())
        )
        wait = inf if first is None else self._clock.recheck_after((first - now).total_seconds())
        return DueSchedules(now, found, min(wait, self._recheck_interval(poll)), first is not None)

    async def tick(self, plans: Sequence[Plan]) -> dict[str, list[ScheduleTick]]:
        """See `ScheduleOperations`."""
        return await self._do(partial(tick, plans=plans))

    async def schedule_ticks(self, name: str) -> list[ScheduleTick]:
        """See `ScheduleOperations`."""
        return await self._do(lambda jobs: list(reversed(jobs.schedules.ticks.get(name, ()))))

    async def watch_schedules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """See `ScheduleOperations`."""
        return self._subscribers.watch_schedules(changed)
