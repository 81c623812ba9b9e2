"""The part of the storage interface for schedules, with the capability `definitions`.

A tick is a compare-and-set: `tick` applies a plan only to the revision of the schedule that the plan was made from, and
in the same commit makes the jobs and sets the next run. So any number of workers may tick at once, without a leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from pgjq.schedules.plan import Plan
    from pgjq.schedules.schedule import Schedule, ScheduleTick


class DueSchedules(NamedTuple):
    """The due schedules, the time, and the seconds after which to look again if none is due.

    `any_left` is False if no schedule will ever be due, as things are.
    """

    now: datetime
    schedules: list[Schedule]
    wait: float
    any_left: bool = True


class ScheduleOperations(Protocol):
    """The operations on schedules, in one mode."""

    async def schedules(self, name: str | None = None) -> list[Schedule]:
        """List all schedules by name, or one, if it exists."""
        ...

    async def storage_time(self) -> datetime:
        """Return the time of the storage's clock."""
        ...

    async def put_schedule(self, schedule: Schedule, *, revision: int | None) -> bool:
        """Create a schedule, if its name is free; with a revision, replace the one that has it.

        Return whether it did.
        """
        ...

    async def delete_schedule(self, name: str) -> bool:
        """Delete a schedule and its ticks; its jobs stay. Return whether there was one."""
        ...

    async def due_schedules(self, *, limit: int, poll: float) -> DueSchedules:
        """List due schedules, the longest due first, without those that another worker ticks.

        `poll` is the wait of a storage that cannot notify.
        """
        ...

    async def tick(self, plans: Sequence[Plan]) -> dict[str, list[ScheduleTick]]:
        """Apply plans, each as a whole; return the ticks of those applied, by name.

        A plan is left out if its schedule has changed since, or is locked.
        """
        ...

    async def schedule_ticks(self, name: str) -> list[ScheduleTick]:
        """List the last ticks of a schedule, the newest first."""
        ...

    async def watch_schedules(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed`, on any thread, when a schedule or the clock is set; return an undo."""
        ...
