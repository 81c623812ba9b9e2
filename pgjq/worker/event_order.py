"""Publish the events of one job in the order in which they happened.

The replies that events are made of overtake each other: claims, settlements, reaps and enqueues use separate
connections and threads. Events of a later reply are held back until the earlier ones are published:

* a run's events wait for the end of the run before it, if the settler has that outcome and no reply yet; so do `queued`
  and `cancelled`, which the caller of `enqueue` and `cancel` publishes;
* those of a first attempt wait for enqueues of this queue in progress at the claim: one may be the job's own;
* those of a job that was claimed before wait for a reap in progress in this worker, which may have released the job.

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
    """Holds callbacks back until an earlier event has been published. Used from any thread."""

    __slots__ = ("_held", "_lock")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: list[Callable[[], Any]] | None = []

    def hold(self, callback: Callable[[], Any]) -> bool:
        """Call this when the gate opens; return False if it is open already."""
        with self._lock:
            if self._held is None:
                return False
            self._held.append(callback)
            return True

    def open(self) -> None:
        """Call the held callbacks in order; a second call does nothing."""
        with self._lock:
            held, self._held = self._held or [], None
        for callback in held:
            callback()


class EventOrder:
    """Gates that the events of one queue wait for."""

    def __init__(self, bus: EventBus) -> None:
        self._bus = bus
        self._enqueues: dict[Gate, None] = {}
        self._runs: dict[str, Run] = {}  # The latest run of each job, until its end is published.

    def begin_enqueue(self) -> Gate | None:
        """Hold back the events of jobs that are claimed from now on, until `end_enqueue`."""
        if not self._bus.listens:
            return None
        gate = Gate()
        self._enqueues[gate] = None
        return gate

    def end_enqueue(self, gate: Gate | None) -> None:
        """Publish the events that `begin_enqueue` holds back; a second call does nothing."""
        if gate is not None:
            self._enqueues.pop(gate, None)
            gate.open()

    def publish(self, event: Event, enqueue: Gate | None = None) -> None:
        """Publish a caller's change of a job, after the end of the run before it.

        A run that waits for this enqueue came after it; the run before that one may not be published yet.
        """
        run = self._runs.get(event.id)
        gate = run.behind if run is not None and enqueue in run.waits else self._unpublished_ending(run)
        if gate is None or not gate.hold(partial(self._bus.publish, event)):
            self._bus.publish(event)

    def claimed(self, run: Run, reap: Gate | None) -> list[Gate]:
        """Return the gates that the events of a claimed run wait for."""
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
        """Record that the end of a run was published, or that there will be none."""
        job_id = run.claimed.lease.id
        if self._runs.get(job_id) is run:
            del self._runs[job_id]
        run.published = True
        if run.gate is not None:
            run.gate.open()

    def _unpublished_ending(self, run: Run | None) -> Gate | None:
        if run is None or not run.ended:  # A run that has not ended here was reaped: it publishes nothing.
            return None
        gate = run.make_gate()
        if run.published:  # Since the lookup, on the loop; it may have missed the gate.
            gate.open()
        return gate
