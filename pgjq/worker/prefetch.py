"""How many jobs to claim before a slot is free: those that could start within `HORIZON`.

There are two estimates; the smaller one counts:

* A moving average of how long handlers took: known after the first job, so a worker is fast from its start.
* Twice the number of handlers that ended since the last check: handlers that do not end are in no average. It counts
  only if every slot is taken; a worker checks before each claim, so one that was idle had a free slot at that check.
"""

from __future__ import annotations

from typing import Final

HORIZON: Final = 0.1
MOST: Final = 1500
SMOOTHING: Final = 0.05


class Prefetch:
    """The estimates of one worker. Any thread may report; a lost update is harmless."""

    def __init__(self) -> None:
        self._duration: float | None = None
        self._ended = 0
        self._most = MOST
        self._sampled = 0.0
        self._ended_before = 0

    def measure(self, seconds: float) -> None:
        """Record that a handler ended after this many seconds."""
        self._ended += 1
        known = self._duration
        self._duration = seconds if known is None else known + SMOOTHING * (seconds - known)

    def prefetch_count(self, slots: int, *, saturated: bool, now: float) -> int:
        """Return how many jobs `slots` could start within the horizon; `saturated`: no slot is free."""
        if now - self._sampled >= HORIZON:
            self._sample(now, saturated=saturated)
        if not self._duration:
            return 0
        return min(self._most, int(slots * HORIZON / self._duration))

    def reset(self, now: float) -> None:
        """Stop prefetching until handlers end: jobs claimed ahead had to be released."""
        self._most, self._sampled, self._ended_before = 0, now, self._ended

    def _sample(self, now: float, *, saturated: bool) -> None:
        ended, elapsed = self._ended - self._ended_before, now - self._sampled
        self._most = min(MOST, int(2 * ended * HORIZON / elapsed)) if saturated else MOST
        self._sampled, self._ended_before = now, self._ended
