"""Claims whose answers were lost: the worker finds the jobs that they took, and takes them over.

Without this a job would wait for its lease to lapse, and lose an attempt in which it did not run.

* A claim names itself by a random number, so the worker takes over no job of another claim, also if another worker has
  its name. A job that was reaped meanwhile is not found.
* The server may still be at work on the claim when it is asked. So the worker asks again, after pauses that grow, until
  the lease of whatever the claim takes has lapsed.
* A run counts from when its claim was sent: one that is found late is not started, but given back, and its attempt is
  not counted.
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

# How long to ask for jobs that have no lease.
WITHOUT_LEASE = 60.0
GOODBYE_SECONDS = 0.5
# Most claims that fail in an outage never reach the server. The first ones, which may have, are enough to remember.
MOST = 100


class LostClaims:
    """Looks for the jobs of lost claims, on the worker's loop; `found` gets them, and when their claim was sent."""

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
        self._known: set[tuple[str, str, int]] = set()  # Queue, id and lease number of the jobs that were found.
        self._task: asyncio.Task[None] | None = None

    def note(self, claim_id: int, sent: float) -> None:
        """Look for the jobs of a claim from now on."""
        if len(self._sent) < MOST:
            self._sent[claim_id] = sent
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run(), name="pgjq lost claims")

    async def stop(self) -> None:
        """Look once more, for a moment, and end."""
        if self._task is not None:
            await cancel(self._task, CUT_SECONDS)
            if self._sent:
                last = asyncio.get_running_loop().create_task(self._try_to_look())
                await asyncio.wait([last], timeout=GOODBYE_SECONDS)
                last.cancel()

    async def _run(self) -> None:
        pause = BACKOFF
        while self._sent:
            await self._try_to_look()
            await asyncio.sleep(pause)
            pause = longer(pause)
        self._known.clear()

    async def _try_to_look(self) -> None:
        try:
            await self._look()
            self._report.succeeded()
        except Exception as error:  # noqa: BLE001  (the next look may succeed)
            self._report(error)

    async def _look(self) -> None:
        for claim_id, sent in tuple(self._sent.items()):
            lapsed = time.monotonic() > sent + self._keep
            jobs = await self._ops.find_claimed(self._queues, claim_id)
            news = {(job.lease.queue, job.lease.id, job.lease.number): job for job in jobs}
            self._found([job for key, job in news.items() if key not in self._known], sent)
            self._known.update(news)
            if lapsed:
                del self._sent[claim_id]
