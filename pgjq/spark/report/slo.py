"""Targets of queues: the share of jobs that must complete, and how fast failures use it up.

The burn rate is the share of jobs that failed divided by the share that may fail. At 1, exactly what is allowed fails;
at more, the budget of the period is used up before its end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pgjq.spark.report.report_data import Figures

DEFAULT: Final = 99.0
PERIODS: Final = (1, 7, 28)  # Days.
ALL: Final = "*"


@dataclass(frozen=True, slots=True)
class Objective:
    """A queue's target, and its burn rates of the last days, None where nothing ended."""

    queue: str
    target: float  # Per cent of jobs that must complete.
    burns: Mapping[int, float | None]

    @property
    def is_missed(self) -> bool:
        """Whether more has failed in the last seven days than may."""
        return (self.burns[7] or 0.0) > 1

    @property
    def left(self) -> float:
        """The share of the budget of 28 days that is left; negative if more has failed."""
        return 1 - (self.burns[28] or 0.0)


def read_targets(given: Iterable[str]) -> dict[str, float]:
    """Read targets such as `mail=99.9`; `*` is for queues without one of their own."""
    targets = {ALL: DEFAULT}
    for text in given:
        queue, _, number = text.rpartition("=")
        try:
            target = float(number)
        except ValueError:
            target = -1.0
        if not queue or not 0 <= target < 100:  # noqa: PLR2004  (per cent)
            raise ValidationError(
                f"--slo must be a queue and the per cent of its jobs that complete, such as mail=99.9, not {text!r}"
            )
        targets[queue] = target
    return targets


def objectives(figures: Figures, targets: Mapping[str, float]) -> list[Objective]:
    """Measure every queue against its target; the fastest burning first."""
    unknown = sorted(set(targets) - {ALL, *figures.queues})
    if unknown:
        raise ValidationError(f"--slo names the queue {unknown[0]!r}, and nothing of it has ended in this lake")
    found = [_objective(figures, queue, targets.get(queue, targets[ALL])) for queue in figures.queues]
    return sorted(found, key=lambda one: -(one.burns[7] or 0.0))


def _objective(figures: Figures, queue: str, target: float) -> Objective:
    burns: dict[int, float | None] = {}
    for period in PERIODS:
        rows = [row for day in figures.dates[-period:] if (row := figures.days[queue].get(day))]
        counted = sum(row["completed"] + row["failed"] for row in rows)
        failed = sum(row["failed"] for row in rows)
        burns[period] = failed / counted / (1 - target / 100) if counted else None
    return Objective(queue, target, burns)
