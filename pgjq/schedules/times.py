"""The times at which a schedule runs: cron expressions in a time zone, and intervals.

Daylight saving, for a cron expression with a fixed hour: each of its local times runs once for each local day that
exists. A time inside a gap runs when the gap ends, and a time that occurs twice runs the first time. If the hour is `*`
or a step, the expression counts real time from the beginning of the local day: `*/15 * * * *` and `0 */2 * * *` keep
their intervals through both, and the next day begins as usual.

Interval: `anchor + n · every`, in real time.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

from pgjq.schedules.zone import DAY, EPOCH, EPOCH_ORDINAL, local_day, pieces, whole_day

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

    from pgjq.schedules.cron import Cron
    from pgjq.schedules.zone import OffsetPeriod

SECOND: Final = timedelta(seconds=1)
MICROSECOND: Final = timedelta(microseconds=1)
# Matching days to look at in one search. A day has no time to run only if the clock skips all of them.
LOOKS: Final = 1000
# Beyond these no calendar is asked: a few days inside the range of Python's dates.
FIRST_SECOND: Final = (datetime(3, 1, 1, tzinfo=UTC) - EPOCH) // SECOND
LAST_SECOND: Final = (datetime(9998, 1, 1, tzinfo=UTC) - EPOCH) // SECOND


class Times(Protocol):
    """A calendar. Both methods are exact inverses of each other on its times."""

    def after(self, moment: datetime) -> datetime | None:
        """Return the first time after a moment; None if there is none."""
        ...

    def before(self, moment: datetime) -> datetime | None:
        """Return the last time before a moment; None if there is none."""
        ...


class CronTimes:
    """The times of a cron expression in a time zone."""

    def __init__(self, cron: Cron, zone: ZoneInfo) -> None:
        self._cron = cron
        self._zone = zone
        # The ticks of one day ask for the same dates again: without this, a rare date is searched for each of them.
        self._date_from = lru_cache(maxsize=16)(cron.date_from)
        self._date_until = lru_cache(maxsize=16)(cron.date_until)

    def after(self, moment: datetime) -> datetime | None:
        """See `Times`."""
        second = max((moment - EPOCH) // SECOND, FIRST_SECOND)
        if second >= LAST_SECOND:
            return None
        # Local days overlap by hours where a clock is set back over midnight: so it begins a day early, and compares
        # what it finds with the next day.
        best: int | None = None
        last: int | None = None
        day = self._date_from(local_day(self._zone, second) - 1)
        for _ in range(LOOKS):
            if day is None or (last is not None and day > last):
                break
            found = self._first_of(day, second)
            if found is not None and (best is None or found < best):
                best, last = found, last or day + 1
            day = self._date_from(day + 1)
        return None if best is None else EPOCH + best * SECOND

    def before(self, moment: datetime) -> datetime | None:
        """See `Times`."""
        second = min(-((EPOCH - moment) // SECOND), LAST_SECOND)
        if second <= FIRST_SECOND:
            return None
        best: int | None = None
        last: int | None = None
        day = self._date_until(local_day(self._zone, second) + 1)
        for _ in range(LOOKS):
            if day is None or (last is not None and day < last):
                break
            found = self._last_of(day, second)
            if found is not None and (best is None or found > best):
                best, last = found, last or day - 1
            day = self._date_until(day - 1)
        return None if best is None else EPOCH + best * SECOND

    def _first_of(self, day: int, after: int) -> int | None:
        """Return the first time of a local day after a second of UTC."""
        midnight = (day - EPOCH_ORDINAL) * DAY
        for piece in self._pieces(day):
            if piece.instant is not None:
                if piece.instant > after and self._names_any(piece, midnight):
                    return piece.instant
                continue
            wanted = max(piece.start, after + piece.offset + 1)
            found = self._cron.time_from(wanted - midnight) if wanted < piece.end else None
            if found is not None and midnight + found < piece.end:
                return midnight + found - piece.offset
        return None

    def _last_of(self, day: int, before: int) -> int | None:
        """Return the last time of a local day before a second of UTC."""
        midnight = (day - EPOCH_ORDINAL) * DAY
        for piece in reversed(self._pieces(day)):
            if piece.instant is not None:
                if piece.instant < before and self._names_any(piece, midnight):
                    return piece.instant
                continue
            wanted = min(piece.end, before + piece.offset) - 1
            found = self._cron.time_until(wanted - midnight) if wanted >= piece.start else None
            if found is not None and midnight + found >= piece.start:
                return midnight + found - piece.offset
        return None

    def _names_any(self, piece: OffsetPeriod, midnight: int) -> bool:
        found = self._cron.time_from(piece.start - midnight)
        return found is not None and midnight + found < piece.end

    def _pieces(self, day: int) -> tuple[OffsetPeriod, ...]:
        return (whole_day if self._cron.keeps_interval else pieces)(self._zone, day)


class IntervalTimes:
    """The times of an interval, from its anchor on."""

    def __init__(self, anchor: datetime, every: timedelta) -> None:
        self._anchor = anchor
        self._every = every

    def after(self, moment: datetime) -> datetime | None:
        """See `Times`."""
        return self._time(max((moment - self._anchor) // self._every + 1, 0))

    def before(self, moment: datetime) -> datetime | None:
        """See `Times`."""
        n = -((self._anchor - moment) // self._every) - 1
        return self._time(n) if n >= 0 else None

    def _time(self, n: int) -> datetime | None:
        try:
            return self._anchor + n * self._every
        except OverflowError:
            return None


class BoundedTimes:
    """The times of a calendar between a start and an end, both included."""

    def __init__(self, times: Times, start: datetime | None, end: datetime | None) -> None:
        self._times = times
        self._start = start
        self._end = end

    def after(self, moment: datetime) -> datetime | None:
        """See `Times`."""
        if self._start is not None and moment < self._start:
            moment = self._start - MICROSECOND
        return self._within(self._times.after(moment))

    def before(self, moment: datetime) -> datetime | None:
        """See `Times`."""
        if self._end is not None and moment > self._end:
            moment = self._end + MICROSECOND
        return self._within(self._times.before(moment))

    def _within(self, found: datetime | None) -> datetime | None:
        if found is None or (self._start is not None and found < self._start):
            return None
        return None if self._end is not None and found > self._end else found
