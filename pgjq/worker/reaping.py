"""Reap stalled jobs: one batch, its events, and the thread of every worker that does so.

`pgjq.Reaper` (`pgjq/reaper.py`) does the same in a process of its own, at every deadline.
"""

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
# After as many looks in a row at a storage without a processing job, which is a minute by default, a worker looks half
# as often.
LOOKS_OFTEN = 12


def reap_overdue(
    ops: Operations, stale_age: float, logger: logging.Logger, *, always: bool = False
) -> tuple[list[Reaped], float | None]:
    """Read the next deadline; if it has passed, or `always`, reap and log a batch. Return both.

    Less than a full batch means that nothing was left. Most calls find nothing, and planning the statement that reaps
    costs more than reading the first entry of an index.
    """
    due = drive(ops.next_deadline())
    if not always and (due is None or due > 0):
        return [], due
    found = drive(ops.reap(limit=BATCH, stale_age=stale_age))
    log_reaped(found, logger)
    return found, due


def log_reaped(found: list[Reaped], logger: logging.Logger) -> None:
    """Log the jobs of one batch, if it has any."""
    if found:
        logger.info("released stale running jobs count=%d", len(found), extra={"count": len(found)})
        for job in found:
            log_stalled(logger, job)


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


def state_event(event: Event) -> Event:
    """Return the event of the state that a stalled job changed to."""
    name = "failing" if event.action == "recovered" else event.action
    assert name is not None  # noqa: S101  (a stalled event always has an action)
    return Event(name, event.queue, event.id, event.at, event.attempts, error=event.error, task=event.task)


class WorkerReaper:
    """Reaps once at the start and then every `reap_interval` seconds, on a dedicated connection.

    Where nothing has run for a while, it looks at every second interval.

    Calls `reaping` before each batch and `reaped` after it with the jobs found, also when reaping failed.
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
        self._looks = 0  # In a row, without a processing job.
        self._loop = Loop("pgjq reaper", self._step, report)

    def start(self) -> None:
        """Start the thread, unless the policy turns it off."""
        if self._policy.reap_interval > 0:
            self._loop.start()
        else:
            self._logger.warning("this worker does not reap stalled jobs: reap_interval is 0")

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._loop.stop()
        drive(self._ops.close())

    def _step(self) -> float:
        found: list[Reaped] = []
        self._reaping()
        try:
            found, due = reap_overdue(self._ops, self._policy.stale_age, self._logger)
        finally:
            self._reaped(found)
        self._looks = self._looks + 1 if due is None else 0
        return 0.0 if len(found) == BATCH else self._interval()

    def _interval(self) -> float:
        """Return the time until the next look.

        A job that is claimed after this look gets a deadline no sooner than its lease. If that is at least
        `reap_interval`, a look after twice that interval is still within one of the deadline.
        """
        interval, lease = self._policy.reap_interval, self._policy.lease
        is_quiet = self._looks > LOOKS_OFTEN and (lease is None or lease >= 2 * interval)
        return 2 * interval if is_quiet else interval
