"""A worker's record: written when it starts, renewed while it lives, removed when it stops.

* The heartbeat thread renews it, idle or not, at the heartbeat interval of the lease policy. The record stores that
  interval, so that readers know when the worker has been silent for too long (`pgjq.storage.workers`).
* Leases come first: a failed write of the record is reported and tried again later, and delays no heartbeat.
* A stop waits only briefly for the removal. A record left behind expires by itself.
"""

from __future__ import annotations

import asyncio
import builtins
import time
from math import inf
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from pgjq.blocking import drive
from pgjq.errors import PgjqError
from pgjq.storage.workers import Registration

if TYPE_CHECKING:
    import logging
    from collections.abc import Iterable

    from pgjq.storage.base import Operations
    from pgjq.worker.fault_log import Activity

# How often a worker without heartbeats in its policy renews its record, and the shortest interval of any worker.
WITHOUT_HEARTBEAT: Final = 20.0
AT_LEAST: Final = 1.0
STOP_SECONDS: Final = 2.0


class WorkerRegistration:
    """The record of one worker, from one start to its stop."""

    def __init__(
        self,
        worker: str,
        queues: Iterable[str],
        *,
        heartbeat: float | None,
        logger: logging.Logger,
        report: Activity,
    ) -> None:
        interval = WITHOUT_HEARTBEAT if heartbeat is None else max(AT_LEAST, heartbeat)
        self._registration = Registration(uuid4().hex, worker, tuple(queues), interval)
        self._logger = logger
        self._report = report
        self._due = -inf
        self._answered = -inf

    def is_recent(self) -> bool:
        """Return whether the storage accepted the record within the last two intervals."""
        # The heartbeat thread looks every half interval: a renewal may be that late.
        return time.monotonic() - self._answered <= 2.5 * self._registration.heartbeat

    def renew(self, ops: Operations) -> None:
        """Write the record if it is due, with sync operations."""
        now = time.monotonic()
        if now < self._due:
            return
        try:
            drive(ops.worker_seen(self._registration))
        except PgjqError as error:
            self._report(error)
        else:
            self._report.succeeded()
            self._answered, self._due = now, now + self._registration.heartbeat

    async def remove(self, ops: Operations) -> None:
        """Remove the record, with async operations."""
        try:
            async with asyncio.timeout(STOP_SECONDS):
                await ops.worker_stopped(self._registration)
        except (PgjqError, builtins.TimeoutError) as error:
            self._logger.warning(
                "worker record not removed; it lapses by itself",
                extra={"worker": self._registration.worker, "error": str(error)},
            )
