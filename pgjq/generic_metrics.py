"""Metrics of any storage through its operations: Memory, File, Redis and others."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.options import JobFilter
from pgjq.storage.metrics import MetricsReader, QueueReading, Reading

if TYPE_CHECKING:
    from pgjq.job import QueueStats, State
    from pgjq.storage.base import Storage

ENDED: Final[tuple[State, ...]] = ("completed", "failed", "cancelled")
RAN: Final[tuple[State, ...]] = ("completed", "failed")
COUNTED: Final[tuple[State, ...]] = ("processing", "failing", *ENDED)  # A queued job has not stalled.
MOST: Final = 20_000  # Jobs of a queue and state that are looked at one by one, to count them by task.
PAGE: Final = 1000


def reader_of(storage: Storage) -> MetricsReader:
    """Return the storage's own reader, or one through its operations."""
    own = getattr(storage, "metrics", None)
    return own() if own is not None else OperationsReader(storage)


class OperationsReader:
    """See `MetricsReader`. Totals count the jobs that the storage still has."""

    def __init__(self, storage: Storage) -> None:
        self._ops = storage.operations("sync")
        # Counters must not fall when jobs are forgotten.
        self._highest: dict[tuple[str, str, str], int] = {}
        self._stalled: dict[str, int] = {}

    async def read(self) -> Reading:
        """See `MetricsReader`."""
        workers = Counter(queue for worker in await self._ops.workers() if worker.alive for queue in worker.queues)
        counted = [await self._ops.stats(name) for name in await self._ops.queue_names()]
        finished: Counter[tuple[str, str, str]] = Counter()
        stalled: Counter[str] = Counter({stats.name: 0 for stats in counted})
        for stats in counted:
            for state in COUNTED:
                await self._count(stats, state, finished, stalled)
        self._highest |= {key: n for key, n in finished.items() if n > self._highest.get(key, 0)}
        self._stalled |= {name: n for name, n in stalled.items() if n >= self._stalled.get(name, 0)}
        queues = [_queue(stats, workers[stats.name]) for stats in counted]
        return Reading(queues, dict(self._highest), dict(self._stalled))

    async def scale(self, queue: str, target: float) -> int:
        """See `MetricsReader`. The mean run time is that of the oldest jobs that are remembered."""
        stats = await self._ops.stats(queue)
        ran = [
            (job.finished_at - job.started_at).total_seconds()
            for state in RAN
            for job in (await self._ops.find(JobFilter(queue=queue, state=state, limit=PAGE)))[0]
            if job.finished_at is not None and job.started_at is not None
        ]
        return slots(stats, fmean(ran) if ran else 0.0, target)

    async def _count(
        self, stats: QueueStats, state: State, finished: Counter[tuple[str, str, str]], stalled: Counter[str]
    ) -> None:
        """Count a state's jobs by task, and their stalls; where there are too many, only the sum."""
        count: int = getattr(stats, state)
        if count > MOST:
            if state in ENDED:
                finished[stats.name, "", state] += count
            return
        wanted, after = JobFilter(queue=stats.name, state=state, limit=PAGE), cast("Any", 0)
        while count and after is not None:
            page, after = await self._ops.find(replace(wanted, after=after))
            stalled[stats.name] += sum(job.stalled for job in page)
            if state in ENDED:
                finished.update((stats.name, job.task or "", state) for job in page)


def slots(stats: QueueStats, mean: float, target: float) -> int:
    """Return ready jobs * mean run time / target; at least 1 if any is ready or running."""
    if not stats.ready and not stats.processing:
        return 0
    return max(1, ceil(stats.ready * mean / target))


def _queue(stats: QueueStats, workers: int) -> QueueReading:
    return QueueReading(
        queue=stats.name,
        queued=stats.queued,
        processing=stats.processing,
        failing=stats.failing,
        completed=stats.completed,
        failed=stats.failed,
        cancelled=stats.cancelled,
        oldest=stats.oldest_ready_age or 0.0,
        workers=workers,
    )
