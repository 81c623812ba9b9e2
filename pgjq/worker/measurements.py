"""Measure a worker's runs by queue and task: waits, run times, endings and lost leases.

A measurement costs less than two microseconds a job, on the worker's loop. A worker without measurements pays nothing.
"""

from __future__ import annotations

import threading
import time
from bisect import bisect_left
from collections import Counter
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.worker.run import Run
    from pgjq.worker.settler import Answered

BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
SHORTEST: Final = BUCKETS[0]
MOST_SERIES: Final = 200
OTHER: Final = "other"
ENDINGS: Final = frozenset(("completed", "failed", "cancelled"))


class Histogram:
    """Counts of seconds by bucket; the last one has no upper limit."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        """Count a number of seconds; a negative one, of clocks that differ, as 0."""
        if seconds <= SHORTEST:
            self.counts[0] += 1
            self.total += seconds if seconds > 0 else 0.0
        else:
            self.counts[bisect_left(BUCKETS, seconds)] += 1
            self.total += seconds


class Series:
    """Measurements of one task of a queue."""

    __slots__ = ("finished", "runs", "waits")

    def __init__(self) -> None:
        self.waits = Histogram()
        self.runs = Histogram()
        self.finished: dict[str, int] = dict.fromkeys(ENDINGS, 0)


class Measurements:
    """Measurements of the workers in this process.

    `waits` are seconds from the enqueue to the first start, by this machine's clock; a delay that was asked for is part
    of them. `runs` are seconds of every attempt. Beyond `MOST_SERIES`, tasks are measured together as "other".
    """

    def __init__(self) -> None:
        self.series: dict[tuple[str, str], Series] = {}
        self.leases_lost = 0
        self._lock = threading.Lock()
        self._sources: list[Callable[[], Iterable[Run]]] = []

    def add_source(self, in_flight: Callable[[], Iterable[Run]]) -> None:
        """Count the runs in flight that a worker lists."""
        self._sources.append(in_flight)

    def remove_source(self, in_flight: Callable[[], Iterable[Run]]) -> None:
        """Count them no longer."""
        self._sources.remove(in_flight)

    def in_flight(self) -> Counter[str]:
        """Return the number of runs in flight by queue."""
        return Counter(run.claimed.lease.queue for source in tuple(self._sources) for run in source())

    def settled(self, answered: Answered) -> None:
        """Measure runs that were settled, on a worker's loop."""
        now, clock = time.monotonic(), datetime.now(UTC)
        created_at, since = clock, 0.0  # Jobs of a batch were often created at the same time.
        with self._lock:
            for run, _, (_, state) in answered:
                claimed = run.claimed
                key = claimed.lease.queue, claimed.task or ""
                series = self.series.get(key) or self._add(key)
                if state in series.finished:
                    series.finished[state] += 1
                if (began := run.began) is not None:
                    age = now - began
                    series.runs.add(age if run.took is None else run.took)
                    if claimed.attempts == 1:
                        if claimed.created_at != created_at:
                            created_at = claimed.created_at
                            since = (clock - created_at).total_seconds()
                        series.waits.add(since - age)

    def lease_lost(self) -> None:
        """Count a lost lease, on any thread."""
        with self._lock:
            self.leases_lost += 1

    def _add(self, key: tuple[str, str]) -> Series:
        if len(self.series) >= MOST_SERIES:
            key = OTHER, OTHER
        return self.series.setdefault(key, Series())
