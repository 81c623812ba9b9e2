"""The standalone reaper: a process or thread that puts stalled jobs back or fails them.

* When it starts, and when it becomes the leader, the reaper sweeps all overdue jobs. Then it sleeps until the next
  deadline of any job, at most `LOOK` seconds: a job that is claimed meanwhile may have a shorter lease than all others.
  So it notices a stall within `LOOK` seconds of the deadline. Each look reads the first entry of one index.
  (A notification for every claim would cost every claim, for the sake of the few jobs that stall.)
* It also sweeps every `reap_interval` seconds, whatever the deadlines say; 0 turns that off.
* Several reapers may sweep at once, beside those in the workers: one of them takes each job. With `LeaderElection` only
  the leader sweeps, and only while it can prove that it leads (`pgjq.worker.leadership`). The others, and a leader in
  doubt, check every `LOOK` seconds whether they lead.
* A storage error is published as `error`; the reaper tries again after a pause.
"""

from __future__ import annotations

import inspect
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal, overload

from pgjq.blocking import drive
from pgjq.errors import PgjqError, UnsupportedError, ValidationError
from pgjq.event_bus import EventBus
from pgjq.ids import process_name
from pgjq.job import Event
from pgjq.lease import LeasePolicy, visible_for
from pgjq.options import check_seconds
from pgjq.serde import JsonSerde
from pgjq.worker.fault_log import FaultLog
from pgjq.worker.leadership import LeaderElection, Leadership
from pgjq.worker.periodic_thread import Loop
from pgjq.worker.service import Runnable
from pgjq.worker.worker_reaper import stalled, sweep

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable
    from datetime import timedelta

    from pgjq.job import LeadershipName
    from pgjq.serde import Serde
    from pgjq.storage.base import Operations, Storage

ReaperEvent = Literal["stalled", "error", "leadership_acquired", "leadership_lost"]
NAMES = ("stalled", "error", "leadership_acquired", "leadership_lost")
ROLE = "reaper"
LOOK = 0.2
GOODBYE_SECONDS = 2.0


class Reaper(Runnable):
    """Reaps the stalled jobs of every queue, on its own threads.

    A reaper uses `stale_age` and `reap_interval` of its `lease_policy`. The claim recorded when a job stalls and what
    happens then, so a reaper cannot disagree with a worker. `visibility_timeout=t` is short for the same policy as in
    queues.
    """

    def __init__(
        self,
        *,
        storage: Storage,
        visibility_timeout: float | timedelta | None = None,
        lease_policy: LeasePolicy | None = None,
        payload_serde: Serde | None = None,
        logger: logging.Logger | None = None,
        leader_election: LeaderElection | None = None,
    ) -> None:
        self.reaper_id = f"reaper-{process_name()}"
        self.storage = storage
        self.lease_policy = _policy(visibility_timeout, lease_policy)
        self.payload_serde: Serde = payload_serde or JsonSerde()
        self.leader_election = leader_election or LeaderElection()
        self._bus = EventBus(logger, NAMES)
        self._running: _Running | None = None
        if self.leader_election.enabled and not storage.capabilities.leader_election:
            raise UnsupportedError(
                f"{type(storage).__name__} has no leaders; use LeaderElection(enabled=False), or another storage"
            )

    @property
    def is_leader(self) -> bool:
        """Whether this reaper acts now: while it runs or, with an election, can prove that it leads."""
        return self._running is not None and self._running.is_active

    @overload
    def on(self, event: Literal["error"], callback: Callable[[BaseException], Any]) -> None: ...
    @overload
    def on(self, event: Literal["stalled"], callback: Callable[[Event], Any]) -> None: ...
    @overload
    def on(self, event: LeadershipName, callback: Callable[[Event], Any] | Callable[[], Any]) -> None: ...
    def on(self, event: ReaperEvent, callback: Callable[..., Any]) -> None:
        """Call a function with each event of this name, on a thread of this reaper.

        `stalled` and leadership callbacks get an `Event`, `error` callbacks the exception. Leadership events have the
        reaper's id as `id`; their callback may take no argument.
        """
        if inspect.iscoroutinefunction(callback):
            raise ValidationError("a reaper calls plain functions: it has no event loop")
        self._bus.on(event, callback if event in ("stalled", "error") else _with_or_without(callback))

    def start(self) -> None:
        """Start to reap, or to run for leader."""
        if self._running is not None:
            raise PgjqError("this reaper has been started already")
        self._running = _Running(self, self._bus)
        self._running.start()

    def stop(self) -> None:
        """Stop at once and resign, so that another candidate can lead."""
        running, self._running = self._running, None
        if running is not None:
            running.stop()


class _Running:
    """A reaper between `start` and `stop`."""

    def __init__(self, reaper: Reaper, bus: EventBus) -> None:
        self._id = reaper.reaper_id
        self._policy = reaper.lease_policy
        self._serde = reaper.payload_serde
        self._bus = bus
        self._ops: Operations = reaper.storage.dedicated()
        self._stopped = False
        self._swept = 0.0
        faults = FaultLog(bus.logger, self._id, self._publish_error)
        self._loop = Loop("pgjq reaper", self._step, faults.activity("reaping"), end=lambda: drive(self._ops.close()))
        self._leadership = None
        if reaper.leader_election.enabled:
            self._leadership = Leadership(
                reaper.storage.operations("sync"),
                ROLE,
                self._id,
                reaper.leader_election,
                acquired=self._acquired,
                lost=lambda: self._tell("leadership_lost"),
                report=faults.activity("running for leader"),
            )

    @property
    def is_active(self) -> bool:
        return not self._stopped and (self._leadership is None or self._leadership.is_leader)

    def start(self) -> None:
        self._loop.start()
        if self._leadership is not None:
            self._leadership.start()

    def stop(self) -> None:
        self._stopped = True
        if self._leadership is not None:
            self._leadership.stop()
        self._loop.stop(timeout=GOODBYE_SECONDS)
        drive(self._ops.close())  # Ends the wait of a thread for a connection.

    def _step(self) -> float:
        """Sweep if something is due, and return the seconds until the next look."""
        if not self.is_active:
            # A leader in doubt may be re-elected in the same call; then no change wakes this thread. Looking costs no
            # statement.
            self._swept = 0.0
            return LOOK
        due = drive(self._ops.next_deadline())
        if self._is_time_to_sweep(due) and self._sweep():
            return 0.0  # There may be more; check leadership again first.
        # Overdue jobs that were not taken are locked by another transaction, or younger than stale_age.
        return LOOK if due is None or due <= 0 else min(LOOK, due)

    def _is_time_to_sweep(self, due: float | None) -> bool:
        interval = self._policy.reap_interval
        is_first = self._swept == 0.0
        is_floor = interval > 0 and time.monotonic() - self._swept >= interval
        return is_first or is_floor or (due is not None and due <= 0)

    def _sweep(self) -> bool:
        """Reap one batch; return whether there was any job to reap."""
        self._swept = time.monotonic()
        found = sweep(self._ops, self._policy.stale_age, self._bus.logger)
        if self._bus.wants("stalled"):
            for job in found:
                self._bus.tell(stalled(job, self._serde))
        return bool(found)

    def _acquired(self) -> None:
        self._tell("leadership_acquired")
        self._loop.nudge()

    def _tell(self, name: LeadershipName) -> None:
        self._bus.tell(Event(name, "", self._id, datetime.now(UTC)))

    def _publish_error(self, error: Exception, doing: str) -> bool:
        if self._bus.wants("error"):
            self._bus.error(error, f"{doing} failed, trying again")
        return not self._bus.wants("error")


def _policy(visibility_timeout: float | timedelta | None, policy: LeasePolicy | None) -> LeasePolicy:
    if visibility_timeout is None:
        return policy or LeasePolicy()
    if policy is not None:
        raise ValidationError("pass visibility_timeout or lease_policy, not both")
    return visible_for(check_seconds("visibility_timeout", visibility_timeout, above=0))


def _with_or_without(callback: Callable[..., Any]) -> Callable[[Event], Any]:
    """Wrap a function so that it is called without an argument if it takes none."""
    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        return lambda _event: callback()
    except ValueError:  # Some C callables have no signature.
        return callback
    return callback
