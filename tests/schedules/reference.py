"""An independent calendar: it looks at every day, or every minute, and asks zoneinfo what the local clock shows.

`python -m tests.schedules.reference` compares pgjq's calendar with it, for every IANA zone and 20 years. That takes
some minutes.
"""

from __future__ import annotations

import sys
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING

from pgjq.schedules.cron import parse
from pgjq.schedules.times import MICROSECOND, CronTimes
from pgjq.schedules.zone import find_zone

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
ZONES = sorted(name for name in zoneinfo.available_timezones() if name != "localtime")


def dates(first: date, days: int) -> Iterator[date]:
    return (first + n * DAY for n in range(days))


def fixed(zone: zoneinfo.ZoneInfo, day: date, at: time) -> datetime:
    """When a local time of a day runs: the first time it occurs, or when the gap around it ends."""
    wanted = datetime.combine(day, at)
    moment = wanted.replace(tzinfo=zone, fold=0).astimezone(UTC)
    if moment.astimezone(zone).replace(tzinfo=None) == wanted:
        return moment
    while moment.astimezone(zone).utcoffset() == (moment - MINUTE).astimezone(zone).utcoffset():
        moment -= MINUTE
    return moment


def shown(zone: zoneinfo.ZoneInfo, start: datetime, minutes: int, every: int) -> list[datetime]:
    """The minutes of real time at which the local clock shows a multiple of `every` minutes of the hour."""
    found = (start + n * MINUTE for n in range(minutes))
    return [moment for moment in found if moment.astimezone(zone).minute % every == 0]


def forward(times: CronTimes, start: datetime, end: datetime) -> list[datetime]:
    """All times in `[start, end)`, by `after`."""
    found: list[datetime] = []
    moment = times.after(start - MICROSECOND)
    while moment is not None and moment < end:
        found.append(moment)
        moment = times.after(moment)
    return found


def backward(times: CronTimes, start: datetime, end: datetime) -> list[datetime]:
    """The same by `before`, in the same order."""
    found: list[datetime] = []
    moment = times.before(end)
    while moment is not None and moment >= start:
        found.append(moment)
        moment = times.before(moment)
    return found[::-1]


def check_fixed(name: str, at: time, first: date, days: int) -> None:
    """Each local time runs exactly once for each local day."""
    zone = find_zone(name)
    times = CronTimes(parse(f"{at.minute} {at.hour} * * *"), zone)
    expected = [fixed(zone, day, at) for day in dates(first, days)]
    start, end = expected[0], expected[-1] + MICROSECOND
    assert forward(times, start, end) == expected, (name, at)
    assert backward(times, start, end) == expected, (name, at)


def check_interval(name: str, every: int, first: date, days: int) -> None:
    """An expression with any hour runs whenever the clock shows one of its minutes."""
    zone = find_zone(name)
    times = CronTimes(parse(f"*/{every} * * * *"), zone)
    start = datetime.combine(first, time(), UTC)
    expected = shown(zone, start, days * 1440, every)
    assert forward(times, start, start + days * DAY) == expected, (name, every)
    assert backward(times, start, start + days * DAY) == expected, (name, every)


def changes(zone: zoneinfo.ZoneInfo, first: date, days: int) -> list[date]:
    """The days around which the local clock is set."""
    noons = [datetime.combine(day, time(12), UTC).astimezone(zone).utcoffset() for day in dates(first, days)]
    return [first + n * DAY for n in range(1, days) if noons[n] != noons[n - 1]]


def check_zone(name: str, first: date, days: int, ats: Iterable[time]) -> None:
    for at in ats:
        check_fixed(name, at, first, days)
    for day in changes(find_zone(name), first, days):
        check_interval(name, 15, day - 2 * DAY, 4)


def main() -> None:
    for n, name in enumerate(ZONES):
        check_zone(name, date(2026, 1, 1), 20 * 365, [time(0, 0), time(1, 30), time(2, 30), time(23, 45)])
        sys.stdout.write(f"\r{n + 1} of {len(ZONES)} zones")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
