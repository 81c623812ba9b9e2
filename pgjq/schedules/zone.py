"""Time zones by IANA name, and the pieces of real time that a local day consists of.

`zoneinfo` finds the zones of the system, else those of the package `tzdata`, which pgjq depends on.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, NamedTuple
from zoneinfo import ZoneInfo

from pgjq.errors import ValidationError

DAY: Final = 86400
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH_ORDINAL: Final = EPOCH.toordinal()
NAME_LENGTH: Final = 64


class OffsetPeriod(NamedTuple):
    """Local times `[start, end)` as seconds since 1970, and what to subtract to get UTC.

    With `instant` the local times do not exist: the clock skips them at that second of UTC.
    """

    start: int
    end: int
    offset: int
    instant: int | None = None


def find_zone(name: Any) -> ZoneInfo:
    """Return the zone of an IANA name, or raise ValidationError."""
    if not isinstance(name, str):
        raise ValidationError(f"timezone must be an IANA name such as Europe/Berlin, not {type(name).__name__}")
    try:
        return ZoneInfo(name if len(name) <= NAME_LENGTH else "")
    except (ValueError, OSError, KeyError) as error:  # ZoneInfoNotFoundError is a KeyError; a directory, an OSError.
        raise ValidationError(f"unknown timezone {name!r:.80}; use an IANA name such as Europe/Berlin") from error


def local_day(zone: ZoneInfo, second: int) -> int:
    """Return the ordinal of the local date at a second of UTC."""
    return (second + _offset(zone, second)) // DAY + EPOCH_ORDINAL


@lru_cache(maxsize=4096)
def pieces(zone: ZoneInfo, ordinal: int) -> tuple[OffsetPeriod, ...]:
    """Return each local time of a day once, in real order; none if the zone skipped the day.

    Local times that occur twice are in the first piece only; skipped local times have a piece, too.
    """
    start = (ordinal - EPOCH_ORDINAL) * DAY
    end, reached = start + DAY, start
    found: list[OffsetPeriod] = []
    exists = False
    for begins, ends, offset in _segments(zone, start - DAY, end + DAY):
        first, last = begins + offset, min(ends + offset, end)
        exists = exists or (first < end and last > start)
        if first > reached:
            found.append(OffsetPeriod(reached, min(first, end), offset, begins))
        first = max(first, reached)
        if first < last:
            found.append(OffsetPeriod(first, last, offset))
        reached = max(reached, last)
    return tuple(piece for piece in found if piece.start < piece.end) if exists else ()


@lru_cache(maxsize=4096)
def whole_day(zone: ZoneInfo, ordinal: int) -> tuple[OffsetPeriod, ...]:
    """Return a day as one piece of real time: its clock is not set before the next day.

    So a day on which the clock is set has, for example, 23 or 25 hours; a day that the zone skipped has no piece.
    """
    start = (ordinal - EPOCH_ORDINAL) * DAY
    begins = _begin(zone, ordinal)
    length = _begin(zone, ordinal + 1) - begins
    return (OffsetPeriod(start, start + length, start - begins),) if length else ()


def _begin(zone: ZoneInfo, ordinal: int) -> int:
    """Return the first second of UTC at which the local clock shows a day, or a later one."""
    midnight = (ordinal - EPOCH_ORDINAL) * DAY
    for begins, ends, offset in _segments(zone, midnight - DAY, midnight + DAY):
        if ends + offset > midnight:
            return max(begins, midnight - offset)
    return midnight + DAY


def _segments(zone: ZoneInfo, start: int, end: int) -> list[tuple[int, int, int]]:
    """Split a span of UTC where the offset changes: at most once between two midnights of UTC."""
    found = [(start, start, _offset(zone, start))]
    for day in range(start, end, DAY):
        offset = _offset(zone, day + DAY)
        if offset != found[-1][2]:
            change = _change(zone, day, day + DAY)
            found[-1] = (found[-1][0], change, found[-1][2])
            found.append((change, change, offset))
    found[-1] = (found[-1][0], end, found[-1][2])
    return found


def _change(zone: ZoneInfo, low: int, high: int) -> int:
    """Return the first second of a new offset."""
    before = _offset(zone, low)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
    return high


def _offset(zone: ZoneInfo, second: int) -> int:
    offset = zone.utcoffset(zone.fromutc((EPOCH + timedelta(seconds=second)).replace(tzinfo=zone)))
    return 0 if offset is None else int(offset.total_seconds())
