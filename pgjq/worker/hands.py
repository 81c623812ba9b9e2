"""What a worker has in its hands: every run from its claim until it is settled.

The loop adds and removes; the heartbeat's thread reads. A dict under one lock, and nothing is ever waited for in it.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.storage.base import Lease
    from pgjq.worker.run import Run


class Hands:
    """The runs by their leases."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[tuple[Any, int], Run] = {}

    def __len__(self) -> int:
        return len(self._runs)

    def take(self, runs: Iterable[Run]) -> None:
        """Add runs."""
        with self._lock:
            self._runs.update((_name(run.claimed.lease), run) for run in runs)

    def let_go(self, leases: Iterable[Lease]) -> None:
        """Remove runs that are settled."""
        with self._lock:
            for lease in leases:
                self._runs.pop(_name(lease), None)

    def all(self) -> list[Run]:
        """List them."""
        with self._lock:
            return list(self._runs.values())


def _name(lease: Lease) -> tuple[Any, int]:
    """Not by the job's id: that may mean another job by now, whose leases count from one again."""
    return lease.key, lease.number
