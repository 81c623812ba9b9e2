"""The in-flight runs of a worker: every run from its claim until it is settled.

The loop adds and removes; the heartbeat thread reads. A dict under one lock, which is never held while waiting.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.worker.run import Run


class InFlight:
    """The in-flight runs, in the order of their claims."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[Run, None] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def take(self, runs: Iterable[Run]) -> None:
        """Add runs."""
        with self._lock:
            self._runs.update(dict.fromkeys(runs))

    def remove(self, runs: Iterable[Run]) -> None:
        """Remove runs that are settled."""
        with self._lock:
            for run in runs:
                self._runs.pop(run, None)

    def all(self) -> list[Run]:
        """List the runs."""
        with self._lock:
            return list(self._runs)
