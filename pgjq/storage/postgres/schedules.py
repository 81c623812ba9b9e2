"""Schedules on PostgreSQL.

The rules of a tick are in `sql/functions/0001_schedule_ticks.sql`.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pgjq.schedules.schedule import Schedule, ScheduleTick
from pgjq.storage.mailbox import Mailbox
from pgjq.storage.postgres.enqueue import set_values
from pgjq.storage.postgres.mailboxes import SCHEDULES, Topic
from pgjq.storage.postgres.statements import Statements
from pgjq.storage.schedules import DueSchedules

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.schedules.plan import Plan
    from pgjq.storage.postgres.listener import Listener
    from pgjq.storage.postgres.mailboxes import Notice

# A sleeping worker is notified of changes. It looks again this often in case the server's clock was set, or the machine
# was suspended; and seldom while there is nothing to wait for.
LOOK_AGAIN: Final = 60.0
LOOK_SELDOM: Final = 600.0


class PostgresSchedules(Statements):
    """The part of `PostgresOperations` that keeps schedules."""

    _listener: Listener

    async def schedules(self, name: str | None = None) -> list[Schedule]:
        """See `ScheduleOperations`."""
        return [_schedule(row) for row in await self._fetch("schedules", {"name": name})]

    async def storage_time(self) -> datetime:
        """See `ScheduleOperations`."""
        return (await self._fetch("storage_time"))[0][0].astimezone(UTC)

    async def put_schedule(self, schedule: Schedule, *, revision: int | None) -> bool:
        """See `ScheduleOperations`."""
        params = asdict(schedule) | {
            "options": json.dumps(dict(schedule.options)),
            "settings": json.dumps(_settings(schedule)),
            "revision": revision,
        }
        return bool(await self._fetch("add_schedule" if revision is None else "change_schedule", params))

    async def delete_schedule(self, name: str) -> bool:
        """See `ScheduleOperations`."""
        return (await self._fetch("delete_schedule", {"name": name}))[0][0]

    async def due_schedules(self, *, limit: int, poll: float) -> DueSchedules:
        """See `ScheduleOperations`."""
        found = await self._fetch("due_schedules", {"limit": limit})
        now, seconds = found[0][:2]
        longest = poll if self._listener.behind_pooler else LOOK_AGAIN if seconds is not None else LOOK_SELDOM
        wait = longest if seconds is None else min(longest, max(seconds, 0.001))
        due = [_schedule(row[2:]) for row in found if row[2] is not None]
        return DueSchedules(now.astimezone(UTC), due, wait, seconds is not None or self._listener.behind_pooler)

    async def tick(self, plans: Sequence[Plan]) -> dict[str, list[ScheduleTick]]:
        """See `ScheduleOperations`."""
        applied = await self._fetch("tick", {"plans": json.dumps([_plan(plan) for plan in plans])})
        return {name: [_tick(at.astimezone(UTC), tick) for tick in ticks] for name, at, ticks in applied}

    async def schedule_ticks(self, name: str) -> list[ScheduleTick]:
        """See `ScheduleOperations`."""
        found = await self._fetch("schedule_ticks", {"name": name})
        return [ScheduleTick(tick.astimezone(UTC), at.astimezone(UTC), *rest) for tick, at, *rest in found]

    async def watch_schedules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """See `ScheduleOperations`."""
        topic, box = Topic(SCHEDULES), _Watcher(changed)
        await self._run_blocking(lambda: self._listener.subscribe(topic, box))
        return lambda: self._listener.leave(topic, box)


class _Watcher(Mailbox[Any]):
    """A mailbox that passes each notification on, also that some may have been lost."""

    def __init__(self, changed: Callable[[], None]) -> None:
        super().__init__("sync", 1)
        self._call = changed

    def put(self, item: Notice) -> None:
        del item
        self._call()


def _schedule(row: Sequence[Any]) -> Schedule:
    values: list[Any] = [value.astimezone(UTC) if isinstance(value, datetime) else value for value in row]
    return Schedule(*values)


def _plan(plan: Plan) -> dict[str, Any]:
    ticks = [
        {name: _text(value) for name, value in tick._asdict().items() if value not in (None, "")} for tick in plan.ticks
    ]
    return {
        "name": plan.schedule.name,
        "revision": plan.schedule.revision,
        "ticks": ticks,
        "forced": plan.forced,
        "next_run_at": _text(plan.next_run_at),
        "error": plan.error,
        "settings": None if plan.error else _settings(plan.schedule),
    }


def _settings(schedule: Schedule) -> dict[str, Any]:
    return set_values(schedule.settings) | {
        name: value for name in ("task", "headers") if (value := getattr(schedule, name)) is not None
    }


def _text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _tick(at: datetime, written: dict[str, Any]) -> ScheduleTick:
    tick = datetime.fromisoformat(written["tick"]).astimezone(UTC)
    return ScheduleTick(tick, at, written["outcome"], written["job_id"], written["detail"])
