"""Format numbers and points in time for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from datetime import datetime

MEASURES: Final = {
    "ended": "throughput",
    "failure_rate": "failures",
    "stall_rate": "stalls",
    "retry_rate": "retries",
    "wait_p95": "wait, p95",
    "run_p95": "run time, p95",
}
NOTHING: Final = "\N{EN DASH}"
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"), (0.001, "ms"))


def duration(seconds: float | None) -> str:
    """Return a duration in a fitting unit."""
    if seconds is None:
        return NOTHING
    size, unit = next(((s, u) for s, u in _UNITS if seconds >= s), _UNITS[-1])
    return f"{seconds / size:.3g} {unit}"


def count(value: float) -> str:
    """Return a count, shortened if long."""
    for size, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if value >= size:
            return f"{value / (1e3 if letter == 'k' else size):.3g} {letter}"
    return f"{value:,.0f}"


def share(value: float | None) -> str:
    """Return a share of one as a percentage."""
    return NOTHING if value is None else f"{value * 100:.3g} %"


def measured(measure: str, value: float, grain: str = "hour") -> str:
    """Return the value of a measure with its unit."""
    if measure.endswith("_rate"):
        return share(value)
    return f"{count(value)} / {grain[0]}" if measure == "ended" else duration(value)


def between(measure: str, low: float, high: float, grain: str = "hour") -> str:
    """Return a band, with the unit once if both ends have the same."""
    first, last = measured(measure, low, grain), measured(measure, high, grain)
    number, _, unit = first.partition(" ")
    return f"{number if last.endswith(f' {unit}') else first} to {last}"


def stretch(begins: datetime, ends: datetime) -> str:
    """Return the period from begin to end."""
    until = f"{ends:%H:%M}" if (ends - begins).days < 1 else f"{ends.day} {ends:%b %H:%M}"
    return f"{begins.day} {begins:%b %Y, %H:%M} to {until}"
