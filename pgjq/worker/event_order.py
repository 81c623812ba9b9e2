"""Events of one job are published in the order in which they happened.

The answers that events are made of overtake each other: claims, settlements, reaps and enqueues use connections and
threads of their own. What a later answer tells is held back until the earlier one was published:

* a run's events wait for the ending of the run before it, if that was handed to the settler and is not answered yet;
  so do `queued` and `cancelled`, which the caller of `enqueue` and `cancel` publishes;
* those of a first attempt wait for enqueues of this queue that were under way at the claim: one may be the job's own;
* those of a job that was claimed before wait for a reap under way in this worker, which may be what took it back.

Only queues with subscribers pay for this: a lookup by id for each claim and each settlement.
"""

from __future__ import annotations

import threading
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.event_bus import EventBus
    from pgjq.job import Event
    from pgjq.worker.run import Run


class Gate:
    """Holds callbacks back until something has been published. Used from any thread."""

    __slots__ = ("_held", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Callable[[], Any]] | None = []

    def hold(self, callback: Callable[[], Any]) -> bool:
        """Call this when the gate opens; False if it is open already."""
        with self._lock:
            if self._held is None:
                return False
            self._held.append(callback)
            return True

    def open(self) -> None:
        """Call what was held back, in its order; a second call does nothing."""
        with self._lock:
            held, self._held = self._held or [], None
        for callback in held:
            callback()


class EventOrder:
    """What the events of one queue wait for."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._enqueues: dict[Gate, None] = {}
        self._runs: dict[str, Run] = {}  # The latest of each job, until its ending was published.

    def begin_enqueue(self) -> Gate | None:
        """Hold back the events of jobs that are claimed from now on, until `end_enqueue`."""
        if not self._bus.listens:
            return None
        gate = Gate()
        self._enqueues[gate] = None
        return gate

    def end_enqueue(self, gate: Gate | None) -> None:
        """Let go what `begin_enqueue` held back; a second call does nothing."""
        if gate is not None:
            self._enqueues.pop(gate, None)
            gate.open()

    def publish(self, event: Event, enqueue: Gate | None = None) -> None:
        """Publish what a caller did to a job, after the ending of a run that came before it.

        A run that waits for this enqueue came after it; the one before that run may not be published yet.
        """
        run = self._runs.get(event.id)
        gate = run.behind if run is not None and enqueue in run.waits else self._unpublished_ending(run)
        if gate is None or not gate.hold(partial(self._bus.tell, event)):
            self._bus.tell(event)

    def claimed(self, run: Run, reap: Gate | None) -> list[Gate]:
        """Return what the events of a run that was claimed have to wait for."""
        job_id = run.claimed.lease.id
        gates = list(self._enqueues) if run.claimed.attempts == 1 else []
        if reap is not None and run.claimed.lease.number > 1:
            gates.append(reap)
        run.behind = self._unpublished_ending(self._runs.get(job_id))
        if run.behind is not None:
            gates.append(run.behind)
        run.waits = gates
        self._runs[job_id] = run
        return gates

    def published(self, run: Run) -> None:
        """Take note that the ending of a run was published, or that there will be none."""
        job_id = run.claimed.lease.id
        if self._runs.get(job_id) is run:
            del self._runs[job_id]
        run.published = True
        if run.gate is not None:
            run.gate.open()

    def _unpublished_ending(self, run: Run | None) -> Gate | None:
        if run is None or not run.ended:  # What has not ended here was taken back: it will publish nothing.
            return None
        gate = run.make_gate()
        if run.published:  # Since it was looked up, on the loop; it may have missed the gate.
            gate.open()
        return gate
