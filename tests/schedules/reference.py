"""An independent calendar: it looks at every day, or every minute, and asks zoneinfo what the local clock shows.

`python -m tests.schedules.reference` compares pgjq's calendar with it, for every IANA zone and 20 years, and prints the
slowest search. Zones whose clocks are set at the same moments of these years are checked once. That takes two minutes
of CPU; `--part 1/2` checks every second one.
"""

from __future__ import annotations

import argparse
import sys
import zoneinfo
from datetime import UTC, date, datetime, time, timedelta
from time import process_time
from typing import TYPE_CHECKING, Any

from pgjq.schedules import times
from pgjq.schedules.cron import parse
from pgjq.schedules.times import MICROSECOND, CronTimes
from pgjq.schedules.zone import find_zone, pieces, whole_day

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pgjq.schedules.cron import Cron

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
FIRST, YEARS = date(2026, 1, 1), 20
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


def check_steps(name: str, hours: int, day: date) -> None:
    """A step of hours counts real time from the beginning of each local day to the beginning of the next."""
    zone = find_zone(name)
    times = CronTimes(parse(f"0 */{hours} * * *"), zone)
    begin, end = begins(zone, day), begins(zone, day + DAY)
    steps = (begin + n * hours * HOUR for n in range(49))
    assert forward(times, begin, end) == [moment for moment in steps if moment < end], (name, day)
    assert backward(times, begin, end) == forward(times, begin, end), (name, day)


def begins(zone: zoneinfo.ZoneInfo, day: date) -> datetime:
    """The first minute of real time at which the local date is this one, or a later one."""
    moment = datetime.combine(day, time(), UTC) - DAY
    while moment.astimezone(zone).date() < day:
        moment += MINUTE
    return moment


def changes(zone: zoneinfo.ZoneInfo, first: date, days: int) -> list[date]:
    """The days around which the local clock is set."""
    noons = [datetime.combine(day, time(12), UTC).astimezone(zone).utcoffset() for day in dates(first, days)]
    return [first + n * DAY for n in range(1, days) if noons[n] != noons[n - 1]]


def check_zone(name: str, first: date, days: int, ats: Iterable[time]) -> None:
    for at in ats:
        check_fixed(name, at, first, days)
    for day in changes(find_zone(name), first, days):
        check_interval(name, 15, day - 2 * DAY, 4)
        check_steps(name, 2, day - DAY)
        check_steps(name, 5, day)


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--part", default="1/1", help="Check the K-th of N parts of the zones (K/N).")
    part, parts = map(int, options.parse_args().part.split("/"))
    alike = {offsets(find_zone(name)): name for name in ZONES}
    zones = sorted(alike.values())[part - 1 :: parts]
    globals()["CronTimes"] = MeasuredTimes
    for n, name in enumerate(zones):
        check_zone(name, FIRST, YEARS * 365, [time(0, 0), time(1, 30), time(2, 30), time(23, 45)])
        sys.stdout.write(
            f"\r{n + 1} of {len(zones)} of {len(alike)} different zones of {len(ZONES)},"
            f" slowest search {MeasuredTimes.slowest * 1000:.2f} ms of CPU"
        )
        sys.stdout.flush()
    sys.stdout.write("\n")


def offsets(zone: zoneinfo.ZoneInfo) -> tuple[tuple[datetime, timedelta | None], ...]:
    """What the local clock is from when on: two zones with the same of it are the same in these years."""
    first = datetime.combine(FIRST, time(), UTC) - 3 * DAY
    found = [(first, first.astimezone(zone).utcoffset())]
    for day in (first + n * DAY for n in range(YEARS * 365 + 6)):
        if (day + DAY).astimezone(zone).utcoffset() != found[-1][1]:
            minutes = (day + n * MINUTE for n in range(1441))
            found.append(next((m, o) for m in minutes if (o := m.astimezone(zone).utcoffset()) != found[-1][1]))
    return tuple(found)


class MeasuredTimes(CronTimes):
    """A calendar that measures the CPU time of its searches; a slow one is searched again, with empty caches."""

    slowest = 0.0

    def __init__(self, cron: Cron, zone: zoneinfo.ZoneInfo) -> None:
        super().__init__(cron, zone)
        self._given = cron, zone

    def after(self, moment: datetime) -> datetime | None:
        return self._measured(times.CronTimes.after, moment)

    def before(self, moment: datetime) -> datetime | None:
        return self._measured(times.CronTimes.before, moment)

    def _measured(self, search: Callable[[CronTimes, datetime], Any], moment: datetime) -> Any:
        began = process_time()
        found = search(self, moment)
        took = process_time() - began
        for _ in range(5 if took > MeasuredTimes.slowest else 0):  # A pause of the machine does not come again.
            pieces.cache_clear()
            whole_day.cache_clear()
            again, began = times.CronTimes(*self._given), process_time()
            search(again, moment)
            took = min(took, process_time() - began)
        MeasuredTimes.slowest = max(MeasuredTimes.slowest, took)
        return found


if __name__ == "__main__":
    main()
