"""The options of schedules, as type checkers read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from pgjq.declared_options import EnqueueOptions

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from pgjq.schedules.schedule import Missed, Overlap


class ScheduleTimes(TypedDict, total=False):
    """The options of a schedule itself, beside `cron` and `every`."""

    timezone: str
    start_at: datetime | None
    end_at: datetime | None
    missed: Missed
    overlap: Overlap
    jitter: float | timedelta
    starting_deadline: float | timedelta | None


class JobScheduleOptions(ScheduleTimes, EnqueueOptions, total=False):
    """The options of `create_schedule`: those of the schedule, and those of its jobs."""
