"""The thread that keeps leases alive, and the first to learn that one is not.

Rules
* It has a thread and a connection of its own, so that a handler that blocks the event loop, or holds every connection
  of the pool, does not lose its lease.
* One statement renews everything that is in the worker's hands: what runs, what waits to start, what waits to be
  settled.
* A lease that the storage no longer knows is lost: its signal is set. A wish to cancel is passed on by the signal, too.
* A lease that could not be renewed in time is not trusted any more, before it lapses: its signal is set, and the run
  goes on at its own risk. What it ends in is still offered to the storage, which refuses it if somebody else owns the
  job.
* An attempt that has taken too long is over: its signal is set and the outcome is recorded, whatever the handler does.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.worker.loops import Loop
from pgjq.worker.signal import CANCELLED, EXPIRED, LEASE_LOST

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Operations
    from pgjq.worker.hands import Hands
    from pgjq.worker.run import Run

# A worker without jobs still shows itself to people now and then.
IDLE = 20.0
AT_LEAST = 0.02


class Heartbeat:
    """Renews the leases of one worker."""

    def __init__(
        self,
        worker: str,
        hands: Hands,
        ops: Operations,
        *,
        abort: Callable[[Run, str], None],
        report: Callable[[Exception], None],
    ) -> None:
        self._worker = worker
        self._hands = hands
        self._ops = ops
        self._abort = abort
        self._report = report
        self._shown = time.monotonic()
        self._loop = Loop("pgjq heartbeat", self._step, report)

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def nudge(self) -> None:
        """Look again at what is in the worker's hands."""
        self._loop.nudge()

    def stop(self) -> None:
        """End the thread and close its connection."""
        self._loop.stop()
        drive(self._ops.close())

    def _step(self) -> float:
        now = time.monotonic()
        runs = self._hands.all()
        try:
            if any(run.next_beat is not None and run.next_beat <= now for run in runs) or now - self._shown > IDLE:
                self._renew([run for run in runs if run.beat is not None])
        finally:
            self._judge(runs)
        return max(AT_LEAST, min((_next(run) for run in runs), default=now + IDLE) - time.monotonic())

    def _renew(self, runs: list[Run]) -> None:
        sent = self._shown = time.monotonic()
        pulse = drive(self._ops.heartbeat([run.claimed.lease for run in runs], worker=self._worker))
        lost = {id(lease) for lease in pulse.lost}
        cancelled = {id(lease) for lease in pulse.cancel_requested}
        for run in runs:
            if id(run.claimed.lease) in lost:
                self._lose(run)
                continue
            run.renewed(sent)
            if id(run.claimed.lease) in cancelled:
                self._abort(run, CANCELLED)

    def _lose(self, run: Run) -> None:
        """A lease may be gone because its run was settled while the heartbeat was on its way: that is no loss."""
        run.beat = run.next_beat = None
        if not run.ended:
            self._abort(run, LEASE_LOST)

    def _judge(self, runs: list[Run]) -> None:
        now = time.monotonic()
        for run in runs:
            if run.ended or run.signal.aborted:
                continue
            if run.expires is not None and run.expires <= now:
                self._abort(run, EXPIRED)
            elif run.trusted_until is not None and run.trusted_until <= now:
                self._abort(run, LEASE_LOST)


def _next(run: Run) -> float:
    """When a run next needs a look: to be renewed, to be distrusted, or to expire."""
    if run.ended or run.signal.aborted:
        return run.next_beat or float("inf")
    moments = (run.next_beat, run.trusted_until, run.expires)
    return min((m for m in moments if m is not None), default=float("inf"))
