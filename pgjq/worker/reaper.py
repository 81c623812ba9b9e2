"""The reaper in every worker: a thread that takes back jobs whose workers went silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.worker.loops import Loop

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from pgjq.lease import LeasePolicy
    from pgjq.storage.base import Operations, Reaped

BATCH = 1000


class WorkerReaper:
    """Reaps once at the start and then every `reap_interval` seconds, on a connection of its own."""

    def __init__(
        self,
        ops: Operations,
        policy: LeasePolicy,
        logger: logging.Logger,
        *,
        reaped: Callable[[list[Reaped]], None],
        report: Callable[[Exception], None],
    ) -> None:
        self._ops = ops
        self._policy = policy
        self._logger = logger
        self._reaped = reaped
        self._loop = Loop("pgjq reaper", self._step, report)

    def start(self) -> None:
        """Start the thread, unless the policy turns it off."""
        if self._policy.reap_interval > 0:
            self._loop.start()
        else:
            self._logger.warning("this worker takes no stalled jobs back: reap_interval is 0")

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._loop.stop()
        drive(self._ops.close())

    def _step(self) -> float:
        found = drive(self._ops.reap(limit=BATCH, stale_age=self._policy.stale_age))
        if found:
            self._logger.info("released stale running jobs count=%d", len(found), extra={"count": len(found)})
            self._reaped(found)
        return 0.0 if len(found) == BATCH else self._policy.reap_interval
