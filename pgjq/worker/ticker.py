"""The ticker of a worker: makes the jobs of every due schedule, of any queue.

* Every worker has one, on a thread of its own, so that a handler that blocks the event loop delays no tick. There is no
  leader: the storage applies each plan once.
* At first it adds the schedules that the worker's code declares.
* It sleeps until the next schedule is due. A change of a schedule wakes it; it does not poll.
* While there is no schedule, it holds no connection.
* Schedules that another worker ticks at this moment are left to it: the ticker goes on with the next ones.
* A schedule that it cannot tick now, because a transaction has locked it or its queue, is tried again after a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from pgjq.blocking import drive
from pgjq.schedules.plan import plan
from pgjq.worker.declared_schedules import ensure
from pgjq.worker.periodic_thread import Loop

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Sequence

    from pgjq.schedules.plan import Plan
    from pgjq.schedules.schedule import Declared, ScheduleTick
    from pgjq.storage.base import Operations, Storage
    from pgjq.storage.schedules import ScheduleOperations
    from pgjq.worker.fault_log import Activity

BATCH: Final = 100
LONGEST_SLEEP: Final = 3600.0
TRY_AGAIN: Final = 1.0
MADE: Final = ("made", "triggered", "backfilled")


class Ticker:
    """Ticks the schedules of a storage, if it has any."""

    def __init__(
        self,
        storage: Storage,
        logger: logging.Logger,
        declared: Sequence[Declared],
        *,
        poll: float,
        report: Activity,
    ) -> None:
        self._declared = list(declared)
        self._storage = storage
        self._has_schedules = storage.capabilities.definitions
        self._connection: Operations | None = None
        self._logger = logger
        self._poll = poll
        self._unwatch: Callable[[], None] | None = None
        self._caught_up = not self._has_schedules
        self._none_applied = False
        self._loop = Loop("pgjq ticker", self._step, report, end=self._leave)

    def start(self) -> None:
        """Start the thread."""
        if self._has_schedules:
            self._loop.start()

    def caught_up(self) -> bool:
        """Return whether the schedules that were due at the start have ticked, or cannot tick."""
        return self._caught_up

    def stop(self) -> None:
        """End the thread and close its connection."""
        if self._has_schedules:
            self._loop.stop()
            self._leave()

    def _leave(self) -> None:
        unwatch, self._unwatch = self._unwatch, None
        if unwatch is not None:
            unwatch()
        self._disconnect()

    def _connect(self) -> ScheduleOperations:
        self._connection = self._connection or self._storage.dedicated()
        return cast("ScheduleOperations", self._connection)

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            drive(connection.close())

    def _step(self) -> float:
        try:
            wait = self._tick()
        except Exception:
            self._caught_up = True
            raise
        self._caught_up = self._caught_up or wait > 0
        return wait

    def _tick(self) -> float:
        ops = self._connect()
        if self._unwatch is None:
            self._unwatch = drive(ops.watch_schedules(self._loop.run_now))
        while self._declared:
            drive(ensure(ops, self._declared[-1]))
            self._declared.pop()
        due = drive(ops.due_schedules(limit=BATCH, poll=self._poll))
        if not due.schedules:
            if not due.any_left:
                self._disconnect()
            return min(due.wait, LONGEST_SLEEP)
        plans = [plan(schedule, due.now) for schedule in due.schedules]
        applied = drive(ops.tick(plans))
        for made in plans:
            self._log(made, applied.get(made.schedule.name, []))
        # Another worker had the same ones first: it has locked them, so the next look finds others.
        again, self._none_applied = self._none_applied, not applied
        return min(TRY_AGAIN, self._poll) if again and not applied else 0.0

    def _log(self, planned: Plan, ticks: list[ScheduleTick]) -> None:
        name = planned.schedule.name
        if planned.error is not None and ticks:
            self._logger.warning("schedule %s cannot run: %s", name, planned.error, extra={"schedule": name})
            return
        for tick in ticks:
            write = self._logger.debug if tick.outcome in MADE else self._logger.info
            extra = {"schedule": name, "tick": tick.tick, "outcome": tick.outcome, "job_id": tick.job_id}
            write("schedule ticked", extra=extra | {"detail": tick.detail})
