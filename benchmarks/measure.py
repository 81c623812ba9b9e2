"""How a ratio is measured, on a machine whose speed is not constant.

A wall clock rate says as much about the neighbours as about the code. So every figure here is a ratio of two contenders
that take turns: in each round each of them gives one sample, the order changes from round to round, and what is
reported is the median of the rounds' ratios. The quartiles beside it tell how far to believe it.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Literal

Unit = Literal["jobs/s", "ms", "s", "MB", "queries/s", "pages", "jobs", "%", ""]
Side = Literal["at least", "at most"]
Sampler = Callable[[], float]
Samples = Mapping[str, Sequence[float]]

WARM_UPS = 1


@dataclass(frozen=True, slots=True)
class Scale:
    """How much is measured. The quick scale shows that everything runs; its verdicts are hints."""

    rounds: int = 9
    bulk: int = 20_000
    one_call: int = 100_000
    singles: int = 500
    backlog: int = 1_000_000
    future: int = 100_000
    claims: int = 5
    seconds: float = 1.5
    drained: int = 100_000
    drains: int = 5
    pickups: int = 200
    releases: int = 15
    worn_in: int = 100_000
    worn_out: int = 1_000_000
    until_idle: float = 75.0
    idle: float = 60.0
    growth: int = 2_000_000
    pinned: float = 120.0
    blocked: int = 50_000
    spark_rows: int = 1_000_000
    spark_rounds: int = 5


FULL = Scale()
QUICK = Scale(
    rounds=5,
    bulk=5_000,
    one_call=20_000,
    singles=200,
    backlog=100_000,
    future=10_000,
    claims=3,
    seconds=0.7,
    drained=20_000,
    drains=2,
    pickups=40,
    releases=5,
    worn_in=20_000,
    worn_out=100_000,
    until_idle=75.0,
    idle=40.0,
    growth=100_000,
    pinned=20.0,
    blocked=10_000,
    spark_rows=50_000,
    spark_rounds=2,
)


@dataclass(frozen=True, slots=True)
class Target:
    """A bound for a ratio."""

    bound: float
    side: Side = "at least"

    def is_met(self, ratio: float) -> bool:
        """Say whether a ratio, rounded as people read it, keeps the bound."""
        seen = round(ratio, 2)
        return seen >= self.bound if self.side == "at least" else seen <= self.bound

    def __str__(self) -> str:
        return f"{'≥' if self.side == 'at least' else '≤'} {self.bound:g}"


@dataclass(frozen=True, slots=True)
class Finding:
    """One number: what was measured, against what, and how it turned out."""

    what: str
    against: str
    unit: Unit
    ours: float
    theirs: float
    ratios: Sequence[float]
    target: Target | None

    @property
    def ratio(self) -> float:
        """The median of the rounds' ratios."""
        return median(self.ratios)

    @property
    def middle_half(self) -> tuple[float, float]:
        """Between what ratios half of the rounds lie."""
        if len(self.ratios) == 1:
            return self.ratios[0], self.ratios[0]
        low, _, high = quantiles(self.ratios, n=4, method="inclusive")
        return low, high

    @property
    def verdict(self) -> str:
        """Met or missed, or neither where no target was set."""
        if self.target is None:
            return "no target"
        return "met" if self.target.is_met(self.ratio) else "missed"


def interleave(contenders: Mapping[str, Sampler], rounds: int) -> Samples:
    """Let contenders take turns; nobody always goes first, and the warm-up is not counted."""
    names = list(contenders)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for number in range(-WARM_UPS, rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            gc.collect()  # What one contender left behind is not the next one's to sweep.
            value = contenders[name]()
            if number >= 0:
                samples[name].append(value)
    return samples


def compare(
    samples: Samples, ours: str, theirs: str, *, what: str, against: str, unit: Unit, target: Target | None
) -> Finding:
    """Set one contender against another, round by round."""
    ratios = [a / b for a, b in zip(samples[ours], samples[theirs], strict=True)]
    return Finding(what, against, unit, median(samples[ours]), median(samples[theirs]), ratios, target)


def against_number(
    values: Sequence[float], number: float, *, what: str, unit: Unit, side: Side = "at least"
) -> Finding:
    """Set a contender against a number that was promised, round by round."""
    against = f"{number:,g} {unit}".strip()
    return Finding(what, against, unit, median(values), number, [v / number for v in values], Target(1.0, side))


def jobs_per_second(count: int, work: Callable[[], object]) -> float:
    """Time some work on `count` jobs."""
    start = time.perf_counter()
    work()
    return count / (time.perf_counter() - start)
