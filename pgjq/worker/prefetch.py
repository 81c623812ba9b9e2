"""How many jobs to claim before there is a slot for them: those that could start within `HORIZON`.

Two estimates, and the smaller one counts:

* How long handlers took of late, as a moving average: known after the first job, so a worker is fast from its start.
* How many handlers ended since the last look, twice that: handlers that do not end are in no average. It counts only
  if every slot is taken; a worker looks before each claim, so one that was idle had a free slot at its last look.
"""

from __future__ import annotations

from typing import Final

HORIZON: Final = 0.1
MOST: Final = 1500
SMOOTHING: Final = 0.05


class Prefetch:
    """The estimates of one worker. Handlers on any thread report; an update lost between two threads does no harm."""

    def __init__(self) -> None:
        self._duration: float | None = None
        self._ended = 0
        self._most = MOST
        self._sampled = 0.0
        self._ended_before = 0

    def measure(self, seconds: float) -> None:
        """Take note of a handler that ended after so many seconds."""
        self._ended += 1
        known = self._duration
        self._duration = seconds if known is None else known + SMOOTHING * (seconds - known)

    def ahead(self, slots: int, *, saturated: bool, now: float) -> int:
        """How many jobs `slots` could start within the horizon; `saturated` says that no slot is free."""
        if now - self._sampled >= HORIZON:
            self._sample(now, saturated=saturated)
        if not self._duration:
            return 0
        return min(self._most, int(slots * HORIZON / self._duration))

    def reset(self, now: float) -> None:
        """Claim nothing ahead until handlers are seen to end: what was claimed ahead had to be given back."""
        self._most, self._sampled, self._ended_before = 0, now, self._ended

    def _sample(self, now: float, *, saturated: bool) -> None:
        ended, elapsed = self._ended - self._ended_before, now - self._sampled
        self._most = min(MOST, int(2 * ended * HORIZON / elapsed)) if saturated else MOST
        self._sampled, self._ended_before = now, self._ended
