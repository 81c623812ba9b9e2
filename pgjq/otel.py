"""Traces and metrics for OpenTelemetry. Needs the extra `otel`.

`instrument(queue)` makes a span `send {queue}` for each enqueue and a span `process {queue}` for each attempt, by the
semantic conventions for messaging.

* The context travels in the job's `headers`, written by the global propagator (`traceparent`). A producer in SQL sets
  it itself: `headers => '{"traceparent": "…"}'`. A dead letter has the headers of its job. A job of a schedule has
  none, so that its first attempt starts a trace.
* A process span links to the span that sent the job, and to the attempt before if that ran in this process. It is the
  sender's child if it is the first attempt and starts within `parent_within` seconds of the enqueue.
* A first attempt whose sender was not sampled makes no span if the provider's sampler follows parents, as the default
  does: its context is passed on, and the span that would be dropped is not made.
* Its status is an error only if the job failed for good. An attempt that will be retried has the exception as an event.
"""

from __future__ import annotations

import re
import time
from collections import OrderedDict
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pgjq.client import AsyncClient, Client
from pgjq.errors import MissingExtraError, ValidationError
from pgjq.job import NewJob, task_name
from pgjq.options import check_seconds
from pgjq.outcome import Failed, Failing, Snoozed
from pgjq.queue import Worker
from pgjq.tasks.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from datetime import timedelta

    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, SpanContext, TracerProvider

    from pgjq.client import AnyJob
    from pgjq.queue import AsyncQueue, Queue

__all__ = ["instrument"]

REMEMBERED: Final = 10_000  # Attempts whose span the next attempt can link to.
SENDERS: Final = 1000  # Senders whose context is kept, for the other jobs of their batches.
SYSTEM: Final = "pgjq"
UNSAMPLED: Final = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f][02468ace]$")


def instrument(
    *targets: Queue | AsyncQueue | Client | AsyncClient | Worker,
    parent_within: float | timedelta = 60.0,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> None:
    """Trace and measure queues, clients and workers; call it before they start.

    The providers are the global ones by default. A worker's queues are all instrumented.
    """
    try:
        from opentelemetry import metrics, trace
    except ImportError as error:
        raise MissingExtraError("otel", "traces") from error
    tracer = trace.get_tracer("pgjq", tracer_provider=tracer_provider)
    meter = metrics.get_meter("pgjq", meter_provider=meter_provider)
    sampler = getattr(tracer_provider or trace.get_tracer_provider(), "sampler", None)
    follows = type(sampler).__name__.startswith("ParentBased")
    within = check_seconds("parent_within", parent_within, at_least=0)
    tracing = _Tracing(tracer, meter, within, follows_parents=follows)
    for target in targets:
        for each in target.queues if isinstance(target, Worker) else (target,):
            _attach(each, tracing)


def _attach(target: Queue | AsyncQueue | Client | AsyncClient, tracing: _Tracing) -> None:
    is_client = isinstance(target, (Client, AsyncClient))
    client: Client | AsyncClient = target if is_client else target.client
    if client.outgoing is not None:
        raise ValidationError(f"{target!r} is instrumented already")
    client.outgoing = tracing.send
    if not is_client:
        target.add_middleware(tracing)


class _Tracing:
    """Makes spans: around each run as middleware, and for each enqueue."""

    def __init__(self, tracer: Any, meter: Any, parent_within: float, *, follows_parents: bool) -> None:
        from opentelemetry import context, propagate, trace

        self._trace, self._propagate, self._context = trace, propagate, context
        self._follows_parents = follows_parents
        self._tracer = tracer
        self._parent_within = parent_within
        self._measured: dict[str, dict[str, Any]] = {}
        self._senders: dict[str | None, tuple[Any, datetime, float]] = {}
        self._attempts: OrderedDict[tuple[str, str], SpanContext] = OrderedDict()
        self._sent = meter.create_counter("messaging.client.sent.messages", "{message}", "Jobs enqueued.")
        self._consumed = meter.create_counter("messaging.client.consumed.messages", "{message}", "Attempts.")
        self._duration = meter.create_histogram("messaging.process.duration", "s", "Length of attempts.")

    def send(self, queue: str, jobs: Iterable[AnyJob]) -> list[NewJob]:
        """Make a span for jobs that are being enqueued, and put its context into their headers."""
        new = [_new_job(job) for job in jobs]
        attributes = _attributes("send", queue)
        if len(new) == 1:
            attributes |= _of_one(new[0].id, task_name(new[0].payload))
        else:
            attributes["messaging.batch.message_count"] = len(new)
        self._sent.add(len(new), _attributes("send", queue))
        kind = self._trace.SpanKind.PRODUCER
        with self._tracer.start_as_current_span(f"send {queue}", kind=kind, attributes=attributes):
            context: dict[str, str] = {}
            self._propagate.inject(context)
        return [replace(job, headers={**context, **(job.headers or {})}) for job in new]

    def run(self, job: Any, call_next: Callable[[Any], Any]) -> Any:
        """Surround a run of a plain function with a span."""
        if (dropped := self._dropped(job)) is None:
            with self._processing(job):
                return call_next(job)
        began, token = time.monotonic(), self._context.attach(dropped)
        try:
            result = call_next(job)
        except BaseException as error:
            self._measure_error(job.queue, began, error)
            raise
        else:
            self._measure(job.queue, began)
            return result
        finally:
            self._context.detach(token)

    async def run_async(self, job: Any, call_next: Callable[[Any], Any]) -> Any:
        """Surround a run of a coroutine with a span."""
        if (dropped := self._dropped(job)) is None:
            with self._processing(job):
                return await call_next(job)
        began, token = time.monotonic(), self._context.attach(dropped)
        try:
            result = await call_next(job)
        except BaseException as error:
            self._measure_error(job.queue, began, error)
            raise
        else:
            self._measure(job.queue, began)
            return result
        finally:
            self._context.detach(token)

    def _dropped(self, job: Any) -> Any:
        """Return the sender's context if the sampler would drop the span of this run, else None."""
        headers = job.headers
        if not headers or not self._follows_parents or job.attempts > 1:
            return None
        traceparent, created_at = headers.get("traceparent"), job.created_at
        known = self._senders.get(traceparent)
        if known is None or known[1] != created_at:
            known = self._remember(traceparent, created_at)
        if known[2] < time.time() or (len(headers) > 1 and ("tracestate" in headers or "baggage" in headers)):
            return None
        return known[0]

    def _remember(self, traceparent: str | None, created_at: datetime) -> tuple[Any, datetime, float]:
        """Keep the context of a sender that was not sampled, and when it is too old.

        Jobs of a batch have the same context.
        """
        sent = UNSAMPLED.match(traceparent or "")
        sender, until = None, 0.0
        if sent is not None:
            context = self._trace.SpanContext(int(sent[1], 16), int(sent[2], 16), is_remote=True)
            sender = self._trace.set_span_in_context(self._trace.NonRecordingSpan(context))
            until = created_at.timestamp() + self._parent_within
        if len(self._senders) >= SENDERS:
            self._senders.clear()
        self._senders[traceparent] = known = sender, created_at, until
        return known

    def _measure(self, queue: str, began: float) -> None:
        attributes = self._measured.get(queue)
        if attributes is None:
            attributes = self._measured[queue] = _attributes("process", queue)
        self._consumed.add(1, attributes)
        self._duration.record(time.monotonic() - began, attributes)

    def _measure_error(self, queue: str, began: float, error: BaseException) -> None:
        attributes = {**_attributes("process", queue), "error.type": type(error).__qualname__}
        self._consumed.add(1, attributes)
        self._duration.record(time.monotonic() - began, attributes)

    @contextmanager
    def _processing(self, job: Any) -> Generator[None]:
        with self._span(job) as span:
            began = time.monotonic()
            try:
                yield
            except BaseException as error:
                self._note(span, job, error)
                self._measure_error(job.queue, began, error)
                raise
            else:
                span.set_attribute("pgjq.outcome", "completed")
                self._measure(job.queue, began)

    def _span(self, job: Any) -> Any:
        sender = self._propagate.extract(job.headers)
        sent = self._trace.get_current_span(sender).get_span_context()
        waited = (datetime.now(UTC) - job.created_at).total_seconds()
        is_child = sent.is_valid and job.attempts == 1 and waited <= self._parent_within
        before = self._attempts.pop((job.queue, job.id), None)
        attributes = _attributes("process", job.queue) | _of_one(job.id, job.task)
        attributes |= {"pgjq.attempt": job.attempts, "pgjq.max_attempts": job.max_attempts, "pgjq.wait": waited}
        return self._tracer.start_as_current_span(
            f"process {job.queue}",
            context=sender if is_child else self._trace.set_span_in_context(self._trace.INVALID_SPAN),
            kind=self._trace.SpanKind.CONSUMER,
            attributes=attributes,
            links=[self._trace.Link(context) for context in (sent, before) if context is not None and context.is_valid],
            record_exception=False,
            set_status_on_exception=False,
        )

    def _note(self, span: Span, job: Any, error: BaseException) -> None:
        outcome = job.outcome_of(error) if isinstance(error, Exception) else None
        match outcome:
            case Failed():
                span.record_exception(error)
                span.set_attributes({"pgjq.outcome": "failed", "error.type": type(error).__qualname__})
                span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, str(error)))
                return
            case Failing():
                span.record_exception(error)
                span.set_attribute("pgjq.outcome", "failing")
            case Snoozed():
                span.set_attribute("pgjq.outcome", "snoozed")
            case _:
                span.set_attribute("pgjq.outcome", job.signal.reason or "aborted")
        self._attempts[job.queue, job.id] = span.get_span_context()
        if len(self._attempts) > REMEMBERED:
            self._attempts.popitem(last=False)


def _new_job(job: AnyJob) -> NewJob:
    if isinstance(job, Call):
        return job.new_job()
    return job if isinstance(job, NewJob) else NewJob(*job)


def _attributes(operation: str, queue: str) -> dict[str, Any]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": queue,
    }


def _of_one(job_id: str | None, task: str | None) -> dict[str, Any]:
    found = {"messaging.message.id": job_id, "pgjq.task": task}
    return {name: value for name, value in found.items() if value is not None}
