"""Cron expressions: the parser, and which dates and times of day an expression names.

* Five fields (minute, hour, day of month, month, weekday), or six with seconds first; or a name such as `@daily`.
* A field is a list of values, ranges `a-b`, `*`, and steps `*/n`, `a-b/n`, `a/n`. Months and weekdays have names; 0 and
  7 are Sunday. `L` is the last day of the month, `5L` the last Friday, `MON#2` the second Monday.
* If day of month and weekday are both restricted, either matches. As in Vixie cron, a field that begins with `*` is not
  restricted.

Parsing and searching are bounded: an expression is at most `LENGTH` characters long, a search looks at `HORIZON_YEARS`
years at most, and an expression that names no date in them is refused.
"""

from __future__ import annotations

import calendar
from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from datetime import date
from typing import Final, NamedTuple

from pgjq.errors import ValidationError

LENGTH: Final = 256
# A 29 February on a given weekday comes back after 40 years at the latest, when 2100 or another such year is between.
HORIZON_YEARS: Final = 41
LAST: Final = -1
LAST_YEAR: Final = 9998
NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
MONTH_NAMES: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
WEEKDAY_NAMES: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
DAYS_OF_WEEK: Final = 7
SUNDAY: Final = 7  # The other number of Sunday, which is 0 in a `Cron`.
HOURS: Final = 24
LONGEST_DAY: Final = 49  # Hours: a zone that moves over the date line has a day twice.
FIVE, SIX = 5, 6


class Field(NamedTuple):
    """The bounds and names of one field."""

    name: str
    low: int
    high: int
    names: dict[str, int]


SECOND: Final = Field("second", 0, 59, {})
MINUTE: Final = Field("minute", 0, 59, {})
HOUR: Final = Field("hour", 0, 23, {})
DAY: Final = Field("day of month", 1, 31, {})
MONTH: Final = Field("month", 1, 12, {name: n for n, name in enumerate(MONTH_NAMES, 1)})
WEEKDAY: Final = Field("weekday", 0, SUNDAY, {name: n for n, name in enumerate(WEEKDAY_NAMES)})


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression; weekdays count from 0, Sunday; `nth` pairs one with 1 to 5 or LAST."""

    text: str
    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]  # With `LAST` for the last day of the month.
    months: frozenset[int]
    weekdays: frozenset[int]
    nth: frozenset[tuple[int, int]]
    either: bool
    keeps_interval: bool  # The hour is `*` or a step to the end of the day; then `hours` goes on after midnight.

    def matches_day(self, day: date) -> bool:
        """Return whether a date of a matching month is named."""
        length = calendar.monthrange(day.year, day.month)[1]
        by_day = day.day in self.days or (LAST in self.days and day.day == length)
        weekday = day.isoweekday() % DAYS_OF_WEEK
        by_weekday = (
            weekday in self.weekdays
            or (weekday, (day.day - 1) // DAYS_OF_WEEK + 1) in self.nth
            or ((weekday, LAST) in self.nth and day.day > length - DAYS_OF_WEEK)
        )
        return by_day or by_weekday if self.either else by_day and by_weekday

    def date_from(self, ordinal: int) -> int | None:
        """Return the first matching date from a date on, as ordinals; None within the horizon."""
        day = date.fromordinal(ordinal)
        last = min(day.year + HORIZON_YEARS, LAST_YEAR)
        while day.year <= last:
            if day.month not in self.months:
                day = _next_month(day)
            elif self.matches_day(day):
                return day.toordinal()
            else:
                day = date.fromordinal(day.toordinal() + 1)
        return None

    def date_until(self, ordinal: int) -> int | None:
        """Return the last matching date at or before a date; None within the horizon."""
        day = date.fromordinal(ordinal)
        first = max(day.year - HORIZON_YEARS, 2)
        while day.year >= first:
            if day.month not in self.months:
                day = date.fromordinal(day.replace(day=1).toordinal() - 1)
            elif self.matches_day(day):
                return day.toordinal()
            else:
                day = date.fromordinal(day.toordinal() - 1)
        return None

    def time_from(self, second: int) -> int | None:
        """Return the first matching second of the day at or after one, or None."""
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        for h in self.hours[(at := bisect_left(self.hours, hour)) : at + 2]:
            if h > hour:
                return h * 3600 + self.minutes[0] * 60 + self.seconds[0]
            for m in self.minutes[(at := bisect_left(self.minutes, minute)) : at + 2]:
                if m > minute:
                    return h * 3600 + m * 60 + self.seconds[0]
                for s in self.seconds[bisect_left(self.seconds, second) :]:
                    return h * 3600 + m * 60 + s
        return None

    def time_until(self, second: int) -> int | None:
        """Return the last matching second of the day at or before one, or None."""
        hour, minute, second = second // 3600, second // 60 % 60, second % 60
        for h in self.hours[max((at := bisect_right(self.hours, hour)) - 2, 0) : at][::-1]:
            if h < hour:
                return h * 3600 + self.minutes[-1] * 60 + self.seconds[-1]
            for m in self.minutes[max((at := bisect_right(self.minutes, minute)) - 2, 0) : at][::-1]:
                if m < minute:
                    return h * 3600 + m * 60 + self.seconds[-1]
                for s in self.seconds[: bisect_right(self.seconds, second)][::-1]:
                    return h * 3600 + m * 60 + s
        return None


def _next_month(day: date) -> date:
    return date(day.year + day.month // 12, day.month % 12 + 1, 1)


def parse(text: str) -> Cron:
    """Read an expression; ValidationError names the field that is wrong."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"cron must be a str, not {type(text).__name__}")
    if len(text) > LENGTH:
        raise ValidationError(f"cron must not be longer than {LENGTH} characters; this one has {len(text)}")
    words = _spelled_out(text).upper().split()
    if len(words) not in (FIVE, SIX):
        raise ValidationError(f"cron must have five fields, or six with seconds first; {text!r} has {len(words)}")
    cron = _of_fields(text, words if len(words) == SIX else ["0", *words])
    if cron.date_from(date(2001, 1, 1).toordinal()) is None:
        raise ValidationError(f"cron {text!r} never runs: no such date exists")
    return cron


def _spelled_out(text: str) -> str:
    word = text.strip().lower()
    if not word.startswith("@"):
        return text
    if word not in NAMED:
        raise ValidationError(f"unknown cron {text!r}; the names are {', '.join(NAMED)}")
    return NAMED[word]


def _of_fields(text: str, words: list[str]) -> Cron:
    second, minute, hour, day, month, weekday = words
    hours, keeps_interval = _hours(hour, text)
    weekdays, nth = _weekdays(weekday, text)
    return Cron(
        text=text,
        seconds=tuple(sorted(_values(SECOND, second, text))),
        minutes=tuple(sorted(_values(MINUTE, minute, text))),
        hours=hours,
        days=_days(day, text),
        months=frozenset(_values(MONTH, month, text)),
        weekdays=weekdays,
        nth=nth,
        either=not day.startswith("*") and not weekday.startswith("*"),
        keeps_interval=keeps_interval,
    )


def _hours(word: str, text: str) -> tuple[tuple[int, ...], bool]:
    """Return the hours, and whether they are an interval: `*`, `*/2`, `1/3`."""
    hours = sorted(_values(HOUR, word, text))
    span, _, step = word.partition("/")
    is_step = bool(step) and "," not in word and ("-" not in span or span.endswith(f"-{HOUR.high}"))
    if len(hours) < HOURS and not is_step:
        return tuple(hours), False
    return tuple(range(hours[0], LONGEST_DAY, int(step) if is_step else 1)), True


def _days(word: str, text: str) -> frozenset[int]:
    items = word.split(",")
    plain = [item for item in items if item != "L"]
    last = {LAST} if len(plain) < len(items) else set[int]()
    return frozenset(last | (_values(DAY, ",".join(plain), text) if plain else set[int]()))


def _weekdays(word: str, text: str) -> tuple[frozenset[int], frozenset[tuple[int, int]]]:
    weekdays: set[int] = set()
    nth: set[tuple[int, int]] = set()
    for item in word.split(","):
        if "#" in item:
            day, _, n = item.partition("#")
            nth.add((_number(WEEKDAY, day, text) % DAYS_OF_WEEK, _number(Field("#", 1, 5, {}), n, text)))
        elif item.endswith("L") and item != "L":
            nth.add((_number(WEEKDAY, item[:-1], text) % DAYS_OF_WEEK, LAST))
        else:
            weekdays |= {value % DAYS_OF_WEEK for value in _values(WEEKDAY, item, text)}
    return frozenset(weekdays), frozenset(nth)


def _values(field: Field, word: str, text: str) -> set[int]:
    return set[int]().union(*(_item(field, item, text) for item in word.split(",")))


def _item(field: Field, item: str, text: str) -> range:
    """Read `*`, a value or a range, each with or without a step."""
    span, slash, step = item.partition("/")
    low, dash, high = span.partition("-")
    if span == "*":
        first, last = field.low, min(field.high, SUNDAY - 1) if field is WEEKDAY else field.high
    else:
        first = _number(field, low, text)
        last = _number(field, high, text) if dash else field.high if slash else first
    if field is WEEKDAY and dash and last < first and last == 0:
        last = SUNDAY  # FRI-SUN
    if last < first:
        raise ValidationError(f"the {field.name} of cron {text!r} has a range that ends before it begins: {item}")
    return range(first, last + 1, _number(Field("step", 1, field.high or 1, {}), step, text) if slash else 1)


def _number(field: Field, word: str, text: str) -> int:
    if word in field.names:
        return field.names[word]
    if not (word.isascii() and word.isdigit()) or not field.low <= int(word) <= field.high:
        raise ValidationError(
            f"the {field.name} of cron {text!r} must be between {field.low} and {field.high}, not {word or 'empty'}"
        )
    return int(word)
