"""Two lease threads: the heartbeat renews, the deadline watch distrusts unrenewed leases.

Rules
* They are threads, and the heartbeat has a dedicated connection, so that a handler that blocks the event loop, or holds
  every connection of the pool, does not lose its lease.
* A run that has not started a second after its claim is released over that connection: the loop that would start or
  settle it may be blocked.
* One statement renews all in-flight runs: running, waiting to start, waiting to be settled. A lease that the storage no
  longer has is lost; a cancel request sets the run's abort signal.
* A job that another transaction has locked is skipped: its lease is neither lost nor renewed. The heartbeat soon asks
  for it again, and for it alone, until it is renewed, lost, or no longer trusted.
* The heartbeat waits for no locked row for long. All leases of the worker would expire meanwhile.
* The watch never waits for the storage, which may be the cause. It stops trusting a lease that was not renewed in time
  before the lease expires, and sets the abort signal. The settler still offers the run's outcome to the storage, which
  refuses it if another run owns the job. An attempt past its expiry is over, whatever its handler does.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.worker.abort_signal import CANCELLED, EXPIRED, LEASE_LOST
from pgjq.worker.periodic_thread import Loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pgjq.storage.base import Operations
    from pgjq.worker.fault_log import Activity
    from pgjq.worker.in_flight import InFlight
    from pgjq.worker.registration import WorkerRegistration
    from pgjq.worker.run import Run

# A worker without jobs checks this often whether its record must be renewed.
IDLE = 20.0
AT_LEAST = 0.02


class _LeaseThread:
    """A thread that checks the in-flight runs when the next of them is due.

    It checks twice as often as a typical run needs, so that a new run need not wake it: a thread that wakes up takes
    the interpreter away from the new job.
    """

    def __init__(
        self,
        name: str,
        in_flight: InFlight,
        *,
        usual: float | None,
        look: Callable[[list[Run]], None],
        due: Callable[[Run], float],
        report: Activity,
    ) -> None:
        self._in_flight = in_flight
        self._check_runs = look
        self._due = due
        self._next = 0.0
        self._idle = IDLE if usual is None else min(IDLE, usual / 2)
        self._loop = Loop(name, self._step, report)
        self.start = self._loop.start
        self.stop = self._loop.stop

    def note(self, runs: Iterable[Run]) -> None:
        """Check sooner, if one of these runs is due before the next check."""
        self.check_by(min(map(self._due, runs), default=inf))

    def check_by(self, moment: float) -> None:
        """Check at this moment, if the next check is later."""
        if moment < self._next:
            self._loop.run_now()

    def _step(self) -> float:
        self._next = inf  # A run that arrives during a check nudges, and the next check covers it.
        runs = self._in_flight.all()
        self._check_runs(runs)
        now = time.monotonic()
        self._next = min((now + self._idle, *map(self._due, runs)))
        return max(AT_LEAST, self._next - now)


class Heartbeat:
    """Renews the leases of one worker, and its record."""

    def __init__(
        self,
        in_flight: InFlight,
        ops: Operations,
        registration: WorkerRegistration,
        *,
        usual: float | None,
        abort: Callable[[Run, str], None],
        release_late: Callable[[Operations, list[Run]], None],
        report: Activity,
    ) -> None:
        self._ops = ops
        self._registration = registration
        self._abort = abort
        self._release_late = release_late
        self._thread = _LeaseThread(
            "pgjq heartbeat", in_flight, usual=usual, look=self._check_runs, due=_due, report=report
        )
        self.start = self._thread.start
        self.check_by = self._thread.check_by

    def note(self, runs: Iterable[Run]) -> None:
        """Renew sooner, if one of these runs needs it before the next check."""
        self.check_by(min(map(_next_heartbeat, runs), default=inf))

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._thread.stop()
        drive(self._ops.close())

    def _check_runs(self, runs: list[Run]) -> None:
        now = time.monotonic()
        late = [run for run in runs if _start_by(run) <= now and run.give_up()]
        if late:
            self._release_late(self._ops, late)
        runs = [run for run in runs if run.beat is not None and not run.completing]
        due = [run for run in runs if _next_heartbeat(run) <= now]
        if due:
            self._renew(due if all(run.skipped for run in due) else runs)
        self._registration.renew(self._ops)

    def _renew(self, runs: list[Run]) -> None:
        sent = time.monotonic()
        pulse = drive(self._ops.heartbeat([run.claimed.lease for run in runs]))
        lost, skipped = set(map(id, pulse.lost)), set(map(id, pulse.skipped))
        cancelled = set(map(id, pulse.cancel_requested))
        for run in runs:
            lease = id(run.claimed.lease)
            if lease in lost:
                self._mark_lost(run)
                continue
            (run.skip if lease in skipped else run.renewed)(sent)
            if lease in cancelled:
                self._abort(run, CANCELLED)

    def _mark_lost(self, run: Run) -> None:
        """Mark a lease as lost, unless its run was settled while the heartbeat was in progress."""
        run.beat = run.next_beat = None
        if not (run.ended or run.completing):
            self._abort(run, LEASE_LOST)


class DeadlineWatch:
    """Stops trusting leases that were not renewed, and ends attempts that take too long."""

    def __init__(
        self,
        in_flight: InFlight,
        *,
        usual: float | None,
        abort: Callable[[Run, str], None],
        report: Activity,
    ) -> None:
        self._abort = abort
        lookout = _LeaseThread(
            "pgjq lease watch", in_flight, usual=usual, look=self._check_runs, due=_deadline, report=report
        )
        self.start, self.note, self.stop = lookout.start, lookout.note, lookout.stop

    def _check_runs(self, runs: list[Run]) -> None:
        now = time.monotonic()
        for run in runs:
            if _deadline(run) <= now and not run.completing:
                self._abort(run, EXPIRED if run.expires is not None and run.expires <= now else LEASE_LOST)


def _next_heartbeat(run: Run) -> float:
    return inf if run.next_beat is None else run.next_beat


def _start_by(run: Run) -> float:
    return inf if run.started or run.ended else run.start_by


def _due(run: Run) -> float:
    return min(_next_heartbeat(run), _start_by(run))


def _deadline(run: Run) -> float:
    if run.ended or run.aborted:
        return inf
    trusted, expires = run.trusted_until, run.expires
    if trusted is None:
        return inf if expires is None else expires
    return trusted if expires is None or trusted < expires else expires
