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
from pgjq.deadline import Deadline, bounded
from pgjq.errors import PgjqError, UnsupportedError, ValidationError
from pgjq.event_bus import EventBus
from pgjq.ids import process_name
from pgjq.job import Event
from pgjq.lease import LeasePolicy, visible_for
from pgjq.serde import JsonSerde
from pgjq.worker.engine_runner import Runnable
from pgjq.worker.fault_log import FaultLog
from pgjq.worker.leadership import LeaderElection, Leadership
from pgjq.worker.periodic_thread import Loop
from pgjq.worker.reaping import reap_overdue, stalled

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
STOP_SECONDS = 2.0


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
                f"{type(storage).__name__} has no leader election: pass LeaderElection(enabled=False), or use another"
                " storage"
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
        self._bus.on(event, callback if event in ("stalled", "error") else _with_optional_argument(callback))

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
        self._deadline = Deadline()  # Of every call; `stop` brings it forward.
        with bounded(self._deadline):
            self._prepare(reaper, bus)

    def _prepare(self, reaper: Reaper, bus: EventBus) -> None:
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
                lost=lambda: self._publish("leadership_lost"),
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
        self._deadline.end_within(STOP_SECONDS)
        with bounded(self._deadline):
            if self._leadership is not None:
                self._leadership.stop()
            self._loop.stop(timeout=STOP_SECONDS)
            drive(self._ops.close())  # Ends the wait of a thread for a connection.

    def _step(self) -> float:
        """Sweep if something is due, and return the seconds until the next look."""
        if not self.is_active:
            # A leader in doubt may be re-elected in the same call; then no change wakes this thread. Looking costs no
            # statement.
            self._swept = 0.0
            return LOOK
        found, due = reap_overdue(
            self._ops, self._policy.stale_age, self._bus.logger, always=self._must_sweep(time.monotonic())
        )
        if self._bus.wants("stalled"):
            for job in found:
                self._bus.publish(stalled(job, self._serde))
        if found:
            return 0.0  # There may be more; check leadership again first.
        # Overdue jobs that were not taken are locked by another transaction, or younger than stale_age.
        return LOOK if due is None or due <= 0 else min(LOOK, due)

    def _must_sweep(self, now: float) -> bool:
        """Return whether to sweep before the next deadline: at first, then each `reap_interval`."""
        interval = self._policy.reap_interval
        if self._swept and not 0 < interval <= now - self._swept:
            return False
        self._swept = now
        return True

    def _acquired(self) -> None:
        self._publish("leadership_acquired")
        self._loop.run_now()

    def _publish(self, name: LeadershipName) -> None:
        self._bus.publish(Event(name, "", self._id, datetime.now(UTC)))

    def _publish_error(self, error: Exception, doing: str) -> bool:
        if self._bus.wants("error"):
            self._bus.error(error, f"{doing} failed, trying again")
        return not self._bus.wants("error")


def _policy(visibility_timeout: float | timedelta | None, policy: LeasePolicy | None) -> LeasePolicy:
    if visibility_timeout is None:
        return policy or LeasePolicy()
    if policy is not None:
        raise ValidationError("pass visibility_timeout or lease_policy, not both")
    return visible_for(visibility_timeout)


def _with_optional_argument(callback: Callable[..., Any]) -> Callable[[Event], Any]:
    """Wrap a function so that it is called without an argument if it takes none."""
    try:
        inspect.signature(callback).bind(None)
    except TypeError:
        return lambda _event: callback()
    except ValueError:  # Some C callables have no signature.
        return callback
    return callback
