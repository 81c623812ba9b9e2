"""When a worker ends by itself: after some jobs, above some memory, or once nothing is due.

The claimer asks before and after each claim. Once a limit is reached it claims no more, waits until no run is in
flight, and then calls `reached`. Every process claims at least once: a limit that is too low slows
work down, and does not stop it.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from pgjq.options import check_int

if TYPE_CHECKING:
    from collections.abc import Callable

STATM: Final = Path("/proc/self/statm")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one worker process. `drain`: it ends once nothing is due."""

    max_jobs: int | None = None
    max_memory: int | None = None
    drain: bool = False

    def __post_init__(self) -> None:
        """Raise ValidationError for a limit that is not a positive int."""
        for name in ("max_jobs", "max_memory"):
            if getattr(self, name) is not None:
                check_int(name, getattr(self, name), 1, 2**63 - 1)

    @property
    def replaces(self) -> bool:
        """Whether processes are replaced."""
        return self.max_jobs is not None or self.max_memory is not None


class WorkLimits:
    """The limits of a running worker, and what it has claimed."""

    def __init__(self, limits: Limits, reached: Callable[[], object]) -> None:
        self.limits = limits
        self.reached = reached
        self.outcome: Literal["retired", "drained"] | None = None
        self._claimed = 0

    def within(self, wanted: int) -> int:
        """Return how many of the wanted jobs may be claimed."""
        left = wanted if self.limits.max_jobs is None else self.limits.max_jobs - self._claimed
        return min(wanted, left)

    def note(self, claimed: int, *, idle: bool) -> bool:
        """Count claimed jobs; return whether a limit is reached. `idle`: nothing runs or is due."""
        self._claimed += claimed
        if self.within(1) < 1 or self._is_too_large():
            self.outcome = "retired"
        elif self.limits.drain and idle and not claimed:
            self.outcome = "drained"
        return self.outcome is not None

    def _is_too_large(self) -> bool:
        return self.limits.max_memory is not None and self._claimed > 0 and resident_memory() > self.limits.max_memory


def resident_memory() -> int:
    """Return this process's resident memory in bytes; without /proc, the largest so far."""
    if STATM.exists():
        return int(STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    import resource  # Not on every platform.

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
