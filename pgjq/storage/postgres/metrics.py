"""Metrics of PostgreSQL: see `pgjq.storage.metrics`. Every statement has a time limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.storage.metrics import QueueReading, Reading
from pgjq.storage.postgres.session import fetch_limited

if TYPE_CHECKING:
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.session import Rows

TIMEOUT: Final = 10.0  # Seconds that a statement may take.
MOST: Final = 200_000  # Jobs beyond which the last counts of the workers are used.


class PostgresMetrics:
    """See `MetricsReader`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def read(self) -> Reading:
        """See `MetricsReader`. Counts what has ended since the last call."""
        await self._fetch("metrics_record")
        totals = await self._fetch("metrics_totals")
        queues = [QueueReading(*row) for row in await self._fetch("metrics_queues", most=MOST)]
        ((snapshot, late),) = await self._fetch("metrics_server")
        stalled = dict.fromkeys((queue.queue for queue in queues), 0)
        stalled |= {queue: jobs for queue, _, outcome, jobs in totals if outcome == "stalled"}
        return Reading(
            queues,
            finished={(queue, task, outcome): n for queue, task, outcome, n in totals if outcome != "stalled"},
            stalled=stalled,
            leaders={role: pid is not None for role, pid, *_ in await self._fetch("inspect_leaders")},
            oldest_snapshot=snapshot,
            schedule_late=max(0.0, late),
        )

    async def scale(self, queue: str, target: float) -> int:
        """See `MetricsReader`."""
        return (await self._fetch("scale", queue=queue, target=target))[0][0]

    async def _fetch(self, name: str, /, **params: Any) -> Rows:
        async with self._pool.session() as session:
            return await fetch_limited(session, name, params, TIMEOUT)
