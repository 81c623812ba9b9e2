"""Reap stalled jobs: one sweep, its events, and the reaper thread of every worker."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.job import Event
from pgjq.lease import explain
from pgjq.worker.failed_event import failure
from pgjq.worker.job_log import log_stalled
from pgjq.worker.periodic_thread import Loop

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    from pgjq.lease import LeasePolicy
    from pgjq.serde import Serde
    from pgjq.storage.base import Operations, Reaped
    from pgjq.worker.fault_log import Activity

BATCH = 1000


def sweep(ops: Operations, stale_age: float, logger: logging.Logger) -> list[Reaped]:
    """Reap and log one batch; less than a full batch means that nothing was left."""
    found = drive(ops.reap(limit=BATCH, stale_age=stale_age))
    if found:
        logger.info("released stale running jobs count=%d", len(found), extra={"count": len(found)})
        for job in found:
            log_stalled(logger, job)
    return found


def stalled(job: Reaped, serde: Serde) -> Event:
    """Return the event of a stalled job; if it failed, with its error, which has the payload."""
    at = datetime.now(UTC)
    event = Event("stalled", job.queue, job.id, at, job.attempts, count=job.count, action=job.action, task=job.task)
    event = replace(event, reason=job.reason)
    if job.payload is None:
        return event
    error = failure(
        job.id,
        explain(job.reason, job.worker),
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        payload=job.payload,
        serde=serde,
    )
    return replace(event, error=error)


def became(event: Event) -> Event:
    """Return the event of the state that a stalled job changed to."""
    name = "failing" if event.action == "recovered" else event.action
    assert name is not None  # noqa: S101  (a stalled event always has an action)
    return Event(name, event.queue, event.id, event.at, event.attempts, error=event.error, task=event.task)


class WorkerReaper:
    """Reaps once at the start and then every `reap_interval` seconds, on a dedicated connection.

    Calls `reaping` before each sweep and `reaped` after it with the jobs found, also when the sweep failed.
    """

    def __init__(
        self,
        ops: Operations,
        policy: LeasePolicy,
        logger: logging.Logger,
        *,
        reaping: Callable[[], None],
        reaped: Callable[[list[Reaped]], None],
        report: Activity,
    ) -> None:
        self._ops = ops
        self._policy = policy
        self._logger = logger
        self._reaping = reaping
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
        found: list[Reaped] = []
        self._reaping()
        try:
            found = sweep(self._ops, self._policy.stale_age, self._logger)
        finally:
            self._reaped(found)
        return 0.0 if len(found) == BATCH else self._policy.reap_interval
