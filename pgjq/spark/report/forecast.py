"""Forecast of the next seven days, by a plain method whose error is measured.

The forecast of a day is the median of the same weekday in the last four weeks. Its error is what the same method would
have missed on the last seven days, from the days before them: the mean difference, as a share of the mean.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from statistics import fmean, median
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

AHEAD: Final = 7
WEEKS: Final = 4
LEAST: Final = 14  # Days before the held-out ones: two of each weekday.


@dataclass(frozen=True, slots=True)
class Forecast:
    """The expected jobs of the next days, and the method's error on the last seven."""

    days: Mapping[date, float]
    error: float | None

    @property
    def total(self) -> float:
        """All days together."""
        return sum(self.days.values())


def forecast(counts: Mapping[date, int], dates: Sequence[date]) -> Forecast | None:
    """Forecast the days after the last date; None if there are too few days to learn from."""
    if len(dates) < LEAST:
        return None
    ahead = [dates[-1] + timedelta(days=n) for n in range(1, AHEAD + 1)]
    days = {day: _expected(counts, dates, day) for day in ahead}
    return Forecast(days, _error(counts, dates))


def _expected(counts: Mapping[date, int], known: Sequence[date], day: date) -> float:
    first = known[0]
    alike = [day - timedelta(weeks=n) for n in range(1, WEEKS + 2)]
    seen = [counts.get(one, 0) for one in alike if first <= one <= known[-1]][:WEEKS]
    return float(median(seen)) if seen else 0.0


def _error(counts: Mapping[date, int], dates: Sequence[date]) -> float | None:
    known, held_out = dates[:-AHEAD], dates[-AHEAD:]
    if len(known) < LEAST:
        return None
    missed = [abs(counts.get(day, 0) - _expected(counts, known, day)) for day in held_out]
    mean = fmean(counts.get(day, 0) for day in held_out)
    return fmean(missed) / mean if mean else None
