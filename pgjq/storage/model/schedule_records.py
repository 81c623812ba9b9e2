"""The schedules of a model: their records, their last ticks, and which one is due first."""

from __future__ import annotations

import heapq
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pgjq.schedules.schedule import TRACES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.schedules.schedule import Schedule, ScheduleTick


@dataclass(frozen=True, slots=True)
class ScheduleRecord:
    """A schedule, the number of its last job, and the numbers of jobs that may be live."""

    schedule: Schedule
    last_seq: int | None = None
    jobs: tuple[int, ...] = ()


class ScheduleChange(NamedTuple):
    """A change of a schedule: its new record, or None if deleted, and the added ticks."""

    name: str
    record: ScheduleRecord | None
    ticks: Sequence[ScheduleTick] = ()


class ScheduleTable:
    """All schedules by name."""

    def __init__(self) -> None:
        self.records: dict[str, ScheduleRecord] = {}
        self.ticks: dict[str, deque[ScheduleTick]] = {}
        self._due: list[tuple[datetime, str]] = []  # Entries become stale when their schedule changes.

    def put(self, change: ScheduleChange) -> None:
        """Set, replace or delete a schedule."""
        name, record, ticks = change
        if record is None:
            self.records.pop(name, None)
            self.ticks.pop(name, None)
            return
        self.records[name] = record
        self.ticks.setdefault(name, deque(maxlen=TRACES)).extend(ticks)
        if record.schedule.due_at is not None:
            heapq.heappush(self._due, (record.schedule.due_at, name))
            if len(self._due) > 2 * len(self.records) + TRACES:
                self._due = sorted({entry for entry in self._due if self._is_current(entry)})

    def due(self, now: datetime, limit: int) -> list[Schedule]:
        """List the schedules that are due, the longest due first."""
        found: dict[str, tuple[datetime, str]] = {}
        while len(found) < limit and (first := self.first()) is not None and first <= now:
            entry = heapq.heappop(self._due)
            found[entry[1]] = entry
        for entry in found.values():
            heapq.heappush(self._due, entry)
        return [self.records[name].schedule for name in found]

    def first(self) -> datetime | None:
        """Return when the first schedule is due."""
        while self._due and not self._is_current(self._due[0]):
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def _is_current(self, entry: tuple[datetime, str]) -> bool:
        record = self.records.get(entry[1])
        return record is not None and record.schedule.due_at == entry[0]
