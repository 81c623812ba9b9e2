"""Schedules part of the client: create, change, trigger and explain schedules.

`AsyncClient` inherits from `AsyncScheduling`; `Client` wraps its methods as blocking ones. A change reads the schedule,
decides, and writes it if no other change or tick came in between; else it starts again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Unpack, cast
from uuid import uuid4

from pgjq.client_administration import Administration
from pgjq.errors import PolicyError, UnsupportedError, ValidationError
from pgjq.job import task_name
from pgjq.options import check_datetime, check_int
from pgjq.schedules.plan import Plan, PlannedTick, next_runs, runs_between
from pgjq.schedules.schedule import Payload, ScheduleInfo, change, check_name, define, info, resume, tick_name
from pgjq.serde import serialize_payload

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime, timedelta

    from pgjq.schedules.options import JobScheduleOptions
    from pgjq.schedules.schedule import Schedule, ScheduleTick
    from pgjq.serde import Serde
    from pgjq.storage.schedules import ScheduleOperations

PREVIEW = 1000


class Scheduling(Administration):
    """Helpers that the sync and the async client share."""

    payload_serde: Serde

    def _schedules(self) -> ScheduleOperations:
        if not self.storage.capabilities.definitions:
            raise UnsupportedError(
                f"{type(self.storage).__name__} has no schedules, because it has no definitions; docs/storages.md says"
                " which storages have"
            )
        return cast("ScheduleOperations", self._ops)

    async def _schedule(self, name: str) -> Schedule:
        found = await self._schedules().schedules(check_name(name))
        if not found:
            raise ValidationError(f"there is no schedule {name!r}; create_schedule makes one")
        return found[0]

    async def _change_schedule(self, name: str, decide: Callable[[Schedule, datetime], Schedule]) -> ScheduleInfo:
        ops = self._schedules()
        while True:
            schedule = await self._schedule(name)
            new = decide(schedule, await ops.storage_time())
            if await ops.put_schedule(new, revision=schedule.revision):
                return self._info_of(new)

    async def _force(
        self, name: str, plan: Callable[[Schedule, datetime], Plan]
    ) -> tuple[Schedule, Sequence[ScheduleTick]]:
        """Apply a plan that a caller asked for."""
        ops = self._schedules()
        while True:
            schedule = await self._schedule(name)
            applied = await ops.tick([plan(schedule, await ops.storage_time())])
            if name in applied:
                return schedule, applied[name]

    def _info_of(self, schedule: Schedule) -> ScheduleInfo:
        return info(schedule, self.payload_serde.deserialize(schedule.payload))

    def _payload(self, payload: Any, name: str) -> Payload:
        return Payload(serialize_payload(self.payload_serde, payload, f"{name}@"), task_name(payload))


class AsyncScheduling(Scheduling):
    """Schedules of the async client."""

    async def create_schedule(
        self,
        name: str,
        queue: str,
        payload: Any = None,
        *,
        cron: str | None = None,
        every: float | timedelta | None = None,
        **options: Unpack[JobScheduleOptions],
    ) -> ScheduleInfo:
        """Have workers enqueue a job at the times of `cron` or `every`, with the id `{name}@{tick}`.

        ValidationError if the name exists: `update_schedule` changes it. Options of the schedule: `timezone` ("UTC"),
        `start_at`, `end_at`, `missed` ("once": what becomes of ticks that no worker made in time), `overlap` ("allow":
        whether a job is made while an earlier one is live), `jitter` (0), `starting_deadline`. All others are those of
        its jobs, as in `enqueue`, but for `delay` and `run_at`.
        """
        ops = self._schedules()
        data = self._payload(payload, check_name(name))
        new = define(name, queue, data, await ops.storage_time(), {"cron": cron, "every": every, **options})
        if not await ops.put_schedule(new, revision=None):
            raise ValidationError(f"schedule {name!r} exists; update_schedule changes it")
        return self._info_of(new)

    async def update_schedule(self, name: str, **changes: Any) -> ScheduleInfo:
        """Change a schedule: any argument of `create_schedule` but its name; None unsets one.

        A changed time counts from now: runs that the old times have missed are not made up for.
        """
        data = self._payload(changes.pop("payload"), check_name(name)) if "payload" in changes else None
        return await self._change_schedule(name, lambda schedule, now: change(schedule, data, now, changes))

    async def pause_schedule(self, name: str) -> ScheduleInfo:
        """Make no jobs until `resume_schedule`; the ticks in between are not made up for."""
        return await self._change_schedule(name, lambda schedule, _: _paused(schedule))

    async def resume_schedule(self, name: str) -> ScheduleInfo:
        """Make jobs again, from the next tick on."""
        return await self._change_schedule(name, lambda s, now: resume(s, now) if s.paused else s)

    async def delete_schedule(self, name: str) -> None:
        """Delete a schedule. Its jobs stay."""
        if not await self._schedules().delete_schedule(check_name(name)):
            raise ValidationError(f"there is no schedule {name!r}; create_schedule makes one")

    async def trigger_schedule(self, name: str) -> str:
        """Make a job of a schedule now, even a paused one; return its id. The next run stays.

        PolicyError if the queue refuses the job.
        """
        suffix = f".{uuid4().hex[:8]}"

        def now_once(schedule: Schedule, now: datetime) -> Plan:
            tick = PlannedTick(now.replace(microsecond=0), suffix=suffix)
            return Plan(schedule, (tick,), schedule.next_run_at, forced="triggered")

        _, (made,) = await self._force(name, now_once)
        if made.job_id is None:
            raise PolicyError(f"schedule {name!r} made no job: {made.detail}")
        return made.job_id

    async def backfill_schedule(self, name: str, since: datetime, until: datetime) -> list[str]:
        """Make the jobs of the ticks from `since` to before `until`; return their ids.

        A tick whose id is taken makes none. ValidationError if there are more than 1,000 ticks, or if one of them is in
        the future.
        """
        since, until = check_datetime("since", since), check_datetime("until", until)

        def missing(schedule: Schedule, now: datetime) -> Plan:
            ticks = tuple(PlannedTick(tick) for tick in runs_between(schedule, since, until))
            if ticks and ticks[-1].tick > now:
                raise ValidationError(
                    f"until must not be in the future: the tick {tick_name(ticks[-1].tick)} is still to come"
                )
            return Plan(schedule, ticks, schedule.next_run_at, forced="backfilled")

        _, made = await self._force(name, missing)
        return [tick.job_id for tick in made if tick.job_id is not None]

    async def get_schedule(self, name: str) -> ScheduleInfo:
        """Return a schedule; ValidationError if there is none of this name."""
        return self._info_of(await self._schedule(name))

    async def get_schedules(self) -> list[ScheduleInfo]:
        """List all schedules by name."""
        return [self._info_of(schedule) for schedule in await self._schedules().schedules()]

    async def preview_schedule(self, name: str, count: int = 5) -> list[datetime]:
        """Return the next runs of a schedule, as if it were not paused."""
        check_int("count", count, 1, PREVIEW)
        schedule = await self._schedule(name)
        return next_runs(schedule, count, await self._schedules().storage_time())

    async def get_schedule_ticks(self, name: str) -> list[ScheduleTick]:
        """List the last 100 ticks of a schedule, newest first, with what each made or why not."""
        await self._schedule(name)
        return await self._schedules().schedule_ticks(name)


def _paused(schedule: Schedule) -> Schedule:
    return replace(schedule, paused=True)
