"""The calendar: grammar, daylight saving, bounds."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta

import pytest

from pgjq.errors import ValidationError
from pgjq.schedules import cron, times, zone
from pgjq.schedules.cron import parse
from pgjq.schedules.plan import plan
from pgjq.schedules.schedule import Schedule
from pgjq.schedules.times import MICROSECOND, BoundedTimes, CronTimes, IntervalTimes
from pgjq.schedules.zone import find_zone
from tests.schedules.reference import DAY, ZONES, changes, check_zone, fixed, forward

HOUR = timedelta(hours=1)
SUNDAY = datetime(2026, 11, 15, tzinfo=UTC)


def runs(expression: str, start: datetime, count: int, timezone: str = "UTC") -> list[str]:
    calendar = CronTimes(parse(expression), find_zone(timezone))
    found, moment = [], start - MICROSECOND
    for _ in range(count):
        following = calendar.after(moment)
        assert following is not None
        found.append(following.astimezone(find_zone(timezone)).strftime("%a %m-%d %H:%M:%S"))
        moment = following
    return found


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("*/20 * * * *", ["Sun 11-15 00:00:00", "Sun 11-15 00:20:00", "Sun 11-15 00:40:00", "Sun 11-15 01:00:00"]),
        ("5/25 0 * * *", ["Sun 11-15 00:05:00", "Sun 11-15 00:30:00", "Sun 11-15 00:55:00", "Mon 11-16 00:05:00"]),
        ("30 9-17/4 * * MON-FRI", ["Mon 11-16 09:30:00", "Mon 11-16 13:30:00", "Mon 11-16 17:30:00"]),
        ("0 12 * JAN,dec 1", ["Mon 12-07 12:00:00", "Mon 12-14 12:00:00", "Mon 12-21 12:00:00", "Mon 12-28 12:00:00"]),
        ("0 0 L * *", ["Mon 11-30 00:00:00", "Thu 12-31 00:00:00", "Sun 01-31 00:00:00", "Sun 02-28 00:00:00"]),
        ("0 0 1,L * *", ["Mon 11-30 00:00:00", "Tue 12-01 00:00:00", "Thu 12-31 00:00:00", "Fri 01-01 00:00:00"]),
        ("0 0 * * MON#2", ["Mon 12-14 00:00:00", "Mon 01-11 00:00:00", "Mon 02-08 00:00:00"]),
        ("0 0 * * 5L,1#1", ["Fri 11-27 00:00:00", "Mon 12-07 00:00:00", "Fri 12-25 00:00:00", "Mon 01-04 00:00:00"]),
        ("0 0 * * 6-7", ["Sun 11-15 00:00:00", "Sat 11-21 00:00:00", "Sun 11-22 00:00:00"]),
        ("0 0 * * SAT-SUN", ["Sun 11-15 00:00:00", "Sat 11-21 00:00:00", "Sun 11-22 00:00:00"]),
        ("0 0 20 * MON", ["Mon 11-16 00:00:00", "Fri 11-20 00:00:00", "Mon 11-23 00:00:00"]),  # either
        ("0 0 */10 * MON", ["Mon 12-21 00:00:00", "Mon 01-11 00:00:00", "Mon 02-01 00:00:00"]),  # both, as in Vixie
        ("15,45 30 8 * * *", ["Sun 11-15 08:30:15", "Sun 11-15 08:30:45", "Mon 11-16 08:30:15"]),
        ("@daily", ["Sun 11-15 00:00:00", "Mon 11-16 00:00:00"]),
        ("@hourly", ["Sun 11-15 00:00:00", "Sun 11-15 01:00:00"]),
        ("@weekly", ["Sun 11-15 00:00:00", "Sun 11-22 00:00:00"]),
        ("@monthly", ["Tue 12-01 00:00:00", "Fri 01-01 00:00:00"]),
        ("@yearly", ["Fri 01-01 00:00:00", "Sat 01-01 00:00:00"]),
        ("0 0 29 2 *", ["Tue 02-29 00:00:00", "Sun 02-29 00:00:00"]),
    ],
)
def test_an_expression_names_these_times(expression: str, expected: list[str]) -> None:
    assert runs(expression, SUNDAY, len(expected)) == expected


@pytest.mark.parametrize(
    "expression",
    [
        "",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "*/-1 * * * *",
        "5-1 * * * *",
        "1,,2 * * * *",
        "1- * * * *",
        "* * * FOO *",
        "* * * * MON#6",
        "* * * * L",
        "@reboot",
        "@every 5m",
        "1_0 * * * *",
        "٣ * * * *",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "*," * 200 + "* * * * *",
        "9" * 250 + " * * * *",
    ],
)
def test_a_wrong_or_hostile_expression_is_refused(expression: str) -> None:
    with pytest.raises(ValidationError, match="cron"):
        parse(expression)


@pytest.mark.parametrize(
    "name", ["Europe/Nowhere", "", "../etc/passwd", "/etc/localtime", "Europe", "x" * 1000, "a\0b"]
)
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(ValidationError, match="timezone"):
        find_zone(name)


def test_a_fixed_time_in_a_gap_runs_when_the_gap_ends_and_a_repeated_one_once() -> None:
    spring, autumn = datetime(2026, 3, 28, 3, tzinfo=UTC), datetime(2026, 10, 24, 3, tzinfo=UTC)
    assert runs("30 2 * * *", spring, 2, "Europe/Berlin") == ["Sun 03-29 03:00:00", "Mon 03-30 02:30:00"]
    # Several times of one gap are one run: the gap ends once.
    assert runs("*/15 2 * * *", spring, 2, "Europe/Berlin") == ["Sun 03-29 03:00:00", "Mon 03-30 02:00:00"]
    assert runs("0 2,3 * * *", spring, 2, "Europe/Berlin") == ["Sun 03-29 03:00:00", "Mon 03-30 02:00:00"]
    assert runs("*/30 2 * * *", autumn, 3, "Europe/Berlin") == [
        "Sun 10-25 02:00:00",
        "Sun 10-25 02:30:00",
        "Mon 10-26 02:00:00",
    ]
    first = CronTimes(parse("30 2 * * *"), find_zone("Europe/Berlin")).after(autumn)
    assert first == datetime(2026, 10, 25, 0, 30, tzinfo=UTC)  # The first of the two.


def test_a_gap_over_midnight_and_a_day_that_never_was() -> None:
    nuuk = datetime(2026, 3, 28, 12, tzinfo=UTC)
    assert runs("30 23 * * *", nuuk, 2, "America/Nuuk") == ["Sun 03-29 00:00:00", "Sun 03-29 23:30:00"]
    apia = datetime(2011, 12, 29, 12, tzinfo=UTC)  # Samoa skipped Friday, 30 December 2011.
    assert runs("0 3 * * *", apia, 3, "Pacific/Apia") == [
        "Thu 12-29 03:00:00",
        "Sat 12-31 03:00:00",
        "Sun 01-01 03:00:00",
    ]


@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "America/St_Johns", "America/Nuuk"])
@pytest.mark.parametrize(
    ("expression", "interval"), [("0 * * * *", 60), ("*/15 */1 * * *", 15), ("*/30 * * * * *", 0.5)]
)
def test_any_hour_keeps_its_interval_through_both_changes(name: str, expression: str, interval: float) -> None:
    calendar = CronTimes(parse(expression), find_zone(name))
    for month, day in ((3, 8), (3, 28), (3, 29), (10, 25), (11, 1)):
        start = datetime(2026, month, day, tzinfo=UTC)
        found = forward(calendar, start, start + timedelta(hours=6 if interval < 1 else 30))
        assert {b - a for a, b in itertools.pairwise(found)} == {timedelta(minutes=interval)}


@pytest.mark.parametrize("expression", ["0 */2 * * *", "0 0-23/2 * * *", "0 0/2 * * *"])
@pytest.mark.parametrize("name", ["Europe/Berlin", "America/New_York", "America/Santiago", "Australia/Lord_Howe"])
def test_a_step_of_hours_keeps_its_interval_until_the_next_midnight(name: str, expression: str) -> None:
    zone, calendar = find_zone(name), CronTimes(parse(expression), find_zone(name))
    for day in changes(zone, date(2026, 1, 1), 365):
        for each in (day - DAY, day):
            midnight = fixed(zone, each, time())
            end = fixed(zone, each + DAY, time())
            assert forward(calendar, midnight, end) == [
                midnight + n * 2 * HOUR for n in range(13) if n * 2 * HOUR < end - midnight
            ]


def test_the_two_hours_of_a_day_with_23_and_one_with_25() -> None:
    spring, autumn = datetime(2026, 3, 28, 23, tzinfo=UTC), datetime(2026, 10, 24, 22, tzinfo=UTC)
    shown = [line[10:12] for line in runs("0 */2 * * *", spring, 14, "Europe/Berlin")]
    assert shown == ["00", "03", "05", "07", "09", "11", "13", "15", "17", "19", "21", "23", "00", "02"]
    shown = [line[10:12] for line in runs("0 */2 * * *", autumn, 15, "Europe/Berlin")]
    assert shown == ["00", "02", "03", "05", "07", "09", "11", "13", "15", "17", "19", "21", "23", "00", "02"]
    # Office hours are fixed times: they do not move with the length of the night.
    assert [line[10:12] for line in runs("0 9-17/4 * * *", spring, 3, "Europe/Berlin")] == ["09", "13", "17"]
    # Five does not divide the day: the last interval ends at midnight.
    shown = [line[10:12] for line in runs("0 */5 * * *", autumn, 6, "Europe/Berlin")]
    assert shown == ["00", "04", "09", "14", "19", "00"]


def test_clocks_that_are_set_back_over_midnight_keep_the_order() -> None:
    start = datetime(2006, 10, 29, 1, 30, tzinfo=UTC)  # St John's went from 00:01 back to 23:01.
    found = forward(CronTimes(parse("*/10 * * * *"), find_zone("America/St_Johns")), start, start + timedelta(hours=4))
    assert found == sorted(set(found))
    check_zone("America/St_Johns", date(2006, 10, 1), 60, [time(0, 0), time(23, 30)])


def test_sampled_zones_and_years_agree_with_an_independent_calendar() -> None:
    choice = random.Random(random.random())  # noqa: S311  (pytest-randomly prints the seed, and can repeat it)
    always = ["Europe/Berlin", "America/Santiago", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Beirut", "UTC"]
    for name in [*always, *choice.sample(ZONES, 14)]:
        first = date(choice.randint(2026, 2045), 1, 1)
        check_zone(name, first, 366, [time(choice.randrange(24), choice.randrange(60)), time(2, 30)])


def test_no_search_takes_many_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    matches, offset = cron.Cron.matches_day, zone._offset

    def count_day(self: cron.Cron, day: date) -> bool:
        nonlocal steps
        steps += 1
        return matches(self, day)

    def count_offset(here: zone.ZoneInfo, second: int) -> int:
        nonlocal steps
        steps += 1
        return offset(here, second)

    monkeypatch.setattr(cron.Cron, "matches_day", count_day)
    monkeypatch.setattr(zone, "_offset", count_offset)
    hostile = ["0 0 29 2 */3", "59 59 23 29 2 */6", "* * * * * *", "30 2-2/1 29 3 *", "0 0 L 2 *", "0 0 * * 1#5"]
    for expression in hostile:
        for year in (3, 1899, 2026, 2095, 9950):
            calendar = CronTimes(parse(expression), find_zone("Europe/Berlin"))
            steps = 0
            calendar.after(datetime(year, 3, 2, tzinfo=UTC))
            calendar.before(datetime(year, 3, 2, tzinfo=UTC))
            assert steps < 5000, (expression, year)  # A step takes some microseconds.
    for missed, most in (("all", 1000), ("once", 101)):
        steps = 0
        late = Schedule("s", "q", b"", times.EPOCH, times.EPOCH, cron="* * * * 7#5", missed=missed)  # type: ignore[arg-type]
        planned = plan(replace(late, next_run_at=times.EPOCH), datetime(2026, 3, 28, tzinfo=UTC))
        assert len(planned.ticks) == most
        assert steps < 5000, missed  # A date is searched once, not for each of its ticks.
    for expression in ("0 0 30 2 *", "0 0 31 4,6,9,11 *"):
        steps = 0
        with pytest.raises(ValidationError):
            parse(expression)
        assert steps < 6000


def test_an_interval_is_aligned_to_its_anchor() -> None:
    anchor = datetime(2026, 1, 1, 0, 0, 7, tzinfo=UTC)
    calendar = IntervalTimes(anchor, timedelta(seconds=90))
    assert calendar.after(anchor - timedelta(days=9)) == anchor
    assert calendar.after(anchor) == anchor + timedelta(seconds=90)
    assert calendar.after(anchor + timedelta(seconds=91)) == anchor + timedelta(seconds=180)
    assert calendar.before(anchor + timedelta(seconds=90)) == anchor
    assert calendar.before(anchor) is None
    bounded = BoundedTimes(calendar, anchor + timedelta(seconds=90), anchor + timedelta(seconds=180))
    assert bounded.after(anchor) == anchor + timedelta(seconds=90)
    assert bounded.after(anchor + timedelta(seconds=180)) is None
    assert bounded.before(anchor + timedelta(days=1)) == anchor + timedelta(seconds=180)
    assert bounded.before(anchor + timedelta(seconds=90)) is None
    assert IntervalTimes(anchor, timedelta(days=365_000)).after(datetime(9500, 1, 1, tzinfo=UTC)) is None


def test_the_ends_of_the_calendar_are_no_errors() -> None:
    calendar = CronTimes(parse("* * * * *"), find_zone("Pacific/Kiritimati"))
    assert calendar.after(times.EPOCH.replace(year=9999)) is None
    assert calendar.before(times.EPOCH.replace(year=1)) is None
    assert calendar.after(times.EPOCH.replace(year=1)) is not None
