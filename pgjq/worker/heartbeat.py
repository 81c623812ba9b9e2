"""Two threads that look after leases: one keeps them alive, one stops trusting those that are not.

Rules
* They are threads, and the one that renews has a connection of its own, so that a handler that blocks the event loop,
  or holds every connection of the pool, does not lose its lease.
* A run that has not started a second after its claim is given back, on that same connection: the loop that would start
  or settle it may be blocked.
* One statement renews everything that is in the worker's hands: what runs, what waits to start, what waits to be
  settled. A lease that the storage no longer knows is lost; a wish to cancel is passed on by the run's signal.
* A job that another transaction has locked is skipped: its lease is neither lost nor renewed. The thread asks for it
  again soon, and for it alone, until it is renewed, lost, or no longer trusted.
* This thread waits for no locked row for long. All leases of the worker would lapse meanwhile.
* The watch never waits for the storage, which may be what is wrong. A lease that could not be renewed in time is not
  trusted any more, before it lapses: its signal is set. What its run ends in is still offered to the storage, which
  refuses it if somebody else owns the job. An attempt that has taken too long is over, whatever its handler does.
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

# A worker without jobs looks now and then whether its record is to be renewed.
IDLE = 20.0
AT_LEAST = 0.02


class _LeaseThread:
    """A thread that looks at what is in the worker's hands when the next of it is due.

    It looks twice as often as a usual run needs, so that nobody has to wake it for one: a thread that wakes up takes
    the interpreter away from the job that has just come.
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
        self._look = look
        self._due = due
        self._next = 0.0
        self._idle = IDLE if usual is None else min(IDLE, usual / 2)
        self._loop = Loop(name, self._step, report)
        self.start = self._loop.start
        self.stop = self._loop.stop

    def note(self, runs: Iterable[Run]) -> None:
        """Look sooner, if one of these is due before the next look."""
        self.look_by(min(map(self._due, runs), default=inf))

    def look_by(self, moment: float) -> None:
        """Look at this moment, if the next look is later."""
        if moment < self._next:
            self._loop.nudge()

    def _step(self) -> float:
        self._next = inf  # Whoever comes while this looks nudges, and is seen by the next look.
        runs = self._in_flight.all()
        self._look(runs)
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
        give_back: Callable[[Operations, list[Run]], None],
        report: Activity,
    ) -> None:
        self._ops = ops
        self._registration = registration
        self._abort = abort
        self._give_back = give_back
        self._lookout = _LeaseThread("pgjq heartbeat", in_flight, usual=usual, look=self._look, due=_due, report=report)
        self.start = self._lookout.start
        self.look_by = self._lookout.look_by

    def note(self, runs: Iterable[Run]) -> None:
        """Beat sooner, if one of these needs it before the next look."""
        self.look_by(min(map(_next_beat, runs), default=inf))

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._lookout.stop()
        drive(self._ops.close())

    def _look(self, runs: list[Run]) -> None:
        now = time.monotonic()
        late = [run for run in runs if _start_by(run) <= now and run.give_up()]
        if late:
            self._give_back(self._ops, late)
        runs = [run for run in runs if run.beat is not None and not run.completing]
        due = [run for run in runs if _next_beat(run) <= now]
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
                self._lose(run)
                continue
            (run.skip if lease in skipped else run.renewed)(sent)
            if lease in cancelled:
                self._abort(run, CANCELLED)

    def _lose(self, run: Run) -> None:
        """A lease may be gone because its run was settled while the heartbeat was on its way: that is no loss."""
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
            "pgjq lease watch", in_flight, usual=usual, look=self._look, due=_deadline, report=report
        )
        self.start, self.note, self.stop = lookout.start, lookout.note, lookout.stop

    def _look(self, runs: list[Run]) -> None:
        now = time.monotonic()
        for run in runs:
            if _deadline(run) <= now and not run.completing:
                self._abort(run, EXPIRED if run.expires is not None and run.expires <= now else LEASE_LOST)


def _next_beat(run: Run) -> float:
    return inf if run.next_beat is None else run.next_beat


def _start_by(run: Run) -> float:
    return inf if run.started or run.ended else run.start_by


def _due(run: Run) -> float:
    return min(_next_beat(run), _start_by(run))


def _deadline(run: Run) -> float:
    if run.ended or run.aborted:
        return inf
    trusted, expires = run.trusted_until, run.expires
    if trusted is None:
        return inf if expires is None else expires
    return trusted if expires is None or trusted < expires else expires
