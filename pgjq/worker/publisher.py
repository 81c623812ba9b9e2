"""Publish events of claims, settlements and reaps to subscribers, in order for each job."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

from pgjq.job import Event
from pgjq.outcome import Completed, Failed, Failing
from pgjq.worker.event_order import Gate
from pgjq.worker.failed_event import failure, read
from pgjq.worker.periodic_thread import call_on_loop
from pgjq.worker.reaping import stalled, state_event

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable, Mapping

    from pgjq.job import State
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Reaped
    from pgjq.worker.handler import Consumer
    from pgjq.worker.run import Run


class Publisher:
    """Publishes on the worker's loop; the reaper's thread calls `reaping` and `reaped`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, consumers: Mapping[str, Consumer]) -> None:
        self._loop = loop
        self._consumers = consumers
        self._reap: Gate | None = None
        self._held: dict[Run, None] = {}  # Runs whose events wait for earlier ones.

    def claimed(self, run: Run) -> None:
        """Publish that a job is processing."""
        gates = run.consumer.order.claimed(run, self._reap)
        if gates:
            run.held, self._held[run] = [], None
        self._publish(run, "processing")
        if gates:
            self._pass(run, gates)

    def settled(self, run: Run, outcome: Outcome, state: State | None) -> None:
        """Publish the state that a run led to; None: its outcome was refused, publish nothing."""
        if state is not None:
            self._publish(run, state, outcome)
        published = partial(run.consumer.order.published, run)
        published() if run.held is None else run.held.append(published)

    def reaping(self) -> None:
        """Hold back the events of jobs that this sweep may reap, until `reaped`."""
        self._reap = Gate()

    def reaped(self, found: list[Reaped]) -> None:
        """Publish the jobs that a sweep found, and then the events held back for it."""
        call_on_loop(self._loop, self._publish_reaped, found, self._reap)

    def error(self, error: Exception, doing: str) -> bool:
        """Pass an error to the `error` callbacks of every queue; return whether to log it as well."""
        buses = [consumer.bus for consumer in self._consumers.values()]
        for bus in buses:
            if bus.wants("error"):
                call_on_loop(self._loop, bus.error, error, f"{doing} failed, trying again")
        return not all(bus.wants("error") for bus in buses)

    def stop(self, unsettled: Iterable[Run]) -> None:
        """Publish the events still held back, and forget runs that the storage did not settle."""
        for run in (*self._held, *unsettled):
            self._publish_held(run)
            run.consumer.order.published(run)

    def _publish_reaped(self, found: list[Reaped], gate: Gate | None) -> None:
        for job in found:
            consumer = self._consumers.get(job.queue)
            if consumer is not None:
                event = stalled(job, consumer.payload_serde)
                consumer.bus.publish(event)
                consumer.bus.publish(state_event(event))
        if gate is self._reap:  # Else the next sweep has begun, and events that wait for it wait for this, too.
            self._reap = None
        if gate is not None:
            gate.open()

    def _pass(self, run: Run, gates: list[Gate]) -> None:
        """Publish a run's events once every gate before them is open."""
        while gates:
            if gates[-1].hold(partial(call_on_loop, self._loop, self._pass, run, gates)):
                return
            gates.pop()
        self._publish_held(run)

    def _publish_held(self, run: Run) -> None:
        self._held.pop(run, None)
        held, run.held = run.held, None
        for publish in held or ():
            publish()

    def _publish(self, run: Run, name: State, outcome: Outcome | None = None) -> None:
        bus = run.consumer.bus
        if bus.wants(name):
            event = _event(run, name, outcome)
            bus.publish(event) if run.held is None else run.held.append(partial(bus.publish, event))


def now() -> datetime:
    """Return the time of an event in this process. No deadline depends on it."""
    return datetime.now(UTC)


def _event(run: Run, name: State, outcome: Outcome | None) -> Event:
    claimed = run.claimed
    event = Event(name, claimed.lease.queue, claimed.lease.id, now(), attempts=claimed.attempts, task=claimed.task)
    match outcome:
        case Completed(result) if result is not None:
            return replace(event, result=read(run.consumer.result_serde, result))
        case Failing(error, _, cause):
            return replace(event, error=cause or error)
        case Failed(error, cause):
            return replace(
                event,
                error=failure(
                    claimed.lease.id,
                    error,
                    attempts=claimed.attempts,
                    max_attempts=claimed.max_attempts,
                    payload=claimed.payload,
                    serde=run.consumer.payload_serde,
                    cause=cause,
                ),
            )
        case _:
            return event
