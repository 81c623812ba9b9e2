"""Find the jobs of claims whose replies were lost, and run them.

Without this a job would wait for its lease to expire, and lose an attempt in which it did not run.

* Each claim has a random id, so the worker takes no job of another claim, even of a worker with the same name. A job
  that was reaped meanwhile is not found.
* The server may still be executing the claim. So the worker asks again, after growing pauses, until any lease of the
  claim has expired.
* A run counts from when its claim was sent: one that is found late is not started, but released, and its attempt does
  not count.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from pgjq.worker.periodic_thread import BACKOFF, CUT_SECONDS, cancel, longer

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.storage.base import Claimed, Operations
    from pgjq.worker.fault_log import Activity

# How long to search for jobs that have no lease.
WITHOUT_LEASE = 60.0
STOP_SECONDS = 0.5
# Most claims that fail in an outage never reach the server. The first ones, which may have, are enough to track.
MOST = 100


class LostClaims:
    """Searches for jobs of lost claims, on the loop; `found` gets them and the sending time."""

    def __init__(
        self,
        ops: Operations,
        queues: Sequence[str],
        *,
        lease: float | None,
        found: Callable[[list[Claimed], float], None],
        report: Activity,
    ) -> None:
        self._ops = ops
        self._queues = queues
        self._keep = WITHOUT_LEASE if lease is None else lease
        self._found = found
        self._report = report
        self._sent: dict[int, float] = {}  # When each claim was sent.
        self._known: set[tuple[str, str, int]] = set()  # Queue, id and lease number of the jobs found.
        self._task: asyncio.Task[None] | None = None

    def note(self, claim_id: int, sent: float) -> None:
        """Search for the jobs of a claim from now on."""
        if len(self._sent) < MOST:
            self._sent[claim_id] = sent
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pgjq lost claims")

    async def stop(self) -> None:
        """Search once more, briefly, and end."""
        if self._task is not None:
            await cancel(self._task, CUT_SECONDS)
            if self._sent:
                last = asyncio.get_running_loop().create_task(self._try_to_search())
                await asyncio.wait([last], timeout=STOP_SECONDS)
                last.cancel()

    async def _run(self) -> None:
        pause = BACKOFF
        while self._sent:
            await self._try_to_search()
            await asyncio.sleep(pause)
            pause = longer(pause)
        self._known.clear()

    async def _try_to_search(self) -> None:
        try:
            await self._search()
            self._report.succeeded()
        except Exception as error:  # noqa: BLE001  (the next search may succeed)
            self._report(error)

    async def _search(self) -> None:
        for claim_id, sent in tuple(self._sent.items()):
            lapsed = time.monotonic() > sent + self._keep
            jobs = await self._ops.find_claimed(self._queues, claim_id)
            news = {(job.lease.queue, job.lease.id, job.lease.number): job for job in jobs}
            self._found([job for key, job in news.items() if key not in self._known], sent)
            self._known.update(news)
            if lapsed:
                del self._sent[claim_id]
