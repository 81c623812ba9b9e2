"""Traces of real runs, in an in-memory exporter."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ParentBased
from opentelemetry.trace import SpanKind, StatusCode

import pgjq
from pgjq.otel import instrument

if TYPE_CHECKING:
    from collections.abc import Iterator


class Recorder:
    """Providers of spans and metrics that keep both."""

    def __init__(self, **options: Any) -> None:
        self.exporter = InMemorySpanExporter()
        self.provider = TracerProvider(**options)
        self.provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.meters = MeterProvider([self.reader])

    def instrument(self, *targets: Any, **options: Any) -> None:
        instrument(*targets, tracer_provider=self.provider, meter_provider=self.meters, **options)

    def spans(self, name: str) -> list[ReadableSpan]:
        """Return the ended spans of a name, in the order of their start."""
        found = [span for span in self.exporter.get_finished_spans() if span.name == name]
        return sorted(found, key=lambda span: span.start_time or 0)

    def sums(self) -> dict[str, float]:
        """Return the counts of all metrics."""
        data = self.reader.get_metrics_data()
        assert data is not None
        found: dict[str, float] = {}
        for metric in data.resource_metrics[0].scope_metrics[0].metrics:
            points: Any = metric.data.data_points
            found[metric.name] = sum(getattr(point, "value", None) or getattr(point, "count", 0) for point in points)
        return found


@pytest.fixture
def recorder() -> Iterator[Recorder]:
    made = Recorder()
    yield made
    made.provider.shutdown()
    made.meters.shutdown()


def links(span: ReadableSpan) -> list[int]:
    return [link.context.span_id for link in span.links]


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


@pytest.mark.parametrize("mode", ["function", "coroutine"])
def test_a_request_is_one_trace(recorder: Recorder, mode: str) -> None:
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    tracer = recorder.provider.get_tracer("shop")

    def write() -> str:
        with tracer.start_as_current_span("write"):
            return "sent"

    if mode == "function":

        @queue.task
        def receipt(order: int) -> str:  # noqa: ARG001
            return write()
    else:

        @queue.task
        async def receipt(order: int) -> str:  # noqa: ARG001
            return write()

    recorder.instrument(queue)
    with queue, tracer.start_as_current_span("request"):
        handle = receipt.enqueue(7)
        assert handle.result(timeout=30) == "sent"
        assert queue.enqueue_and_wait("b", {"task": "receipt", "args": [8]}) == "sent"
    (request,), sends, runs = recorder.spans("request"), recorder.spans("send mail"), recorder.spans("process mail")
    assert [parent(span) for span in sends] == [span_id(request)] * 2
    assert [parent(span) for span in runs] == [span_id(span) for span in sends]
    assert [links(span) for span in runs] == [[span_id(span)] for span in sends]
    assert [parent(span) for span in recorder.spans("write")] == [span_id(span) for span in runs]
    assert {span.context.trace_id for span in recorder.exporter.get_finished_spans() if span.context} == {
        request.context.trace_id if request.context else None
    }
    assert (sends[0].kind, runs[0].kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert dict(runs[0].attributes or {}) | {"pgjq.wait": 0} == {
        "messaging.system": "pgjq", "messaging.operation.name": "process", "messaging.operation.type": "process",
        "messaging.destination.name": "mail", "messaging.message.id": handle.id, "pgjq.task": "receipt",
        "pgjq.attempt": 1, "pgjq.max_attempts": 3, "pgjq.wait": 0, "pgjq.outcome": "completed",
    }  # fmt: skip
    assert recorder.sums() == {
        "messaging.client.sent.messages": 2,
        "messaging.client.consumed.messages": 2,
        "messaging.process.duration": 2,
    }


def test_attempts_are_linked_and_only_the_last_failure_is_an_error(recorder: Recorder) -> None:
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage(), max_attempts=3)
    queue.execute(lambda _job: 1 / 0)
    recorder.instrument(queue)
    with queue, pytest.raises(pgjq.MaxRetriesError):
        queue.enqueue_and_wait("a", 1)
    (send,), runs = recorder.spans("send mail"), recorder.spans("process mail")
    assert [parent(span) for span in runs] == [span_id(send), None, None]
    assert [links(span) for span in runs] == [
        [span_id(send)], [span_id(send), span_id(runs[0])], [span_id(send), span_id(runs[1])]
    ]  # fmt: skip
    assert [span.status.status_code for span in runs] == [StatusCode.UNSET, StatusCode.UNSET, StatusCode.ERROR]
    assert [(span.attributes or {})["pgjq.outcome"] for span in runs] == ["failing", "failing", "failed"]
    assert [[event.name for event in span.events] for span in runs] == [["exception"]] * 3


def test_an_old_job_starts_a_trace_of_its_own(recorder: Recorder) -> None:
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    queue.execute(lambda _job: None)
    recorder.instrument(queue, parent_within=0)
    with queue:
        queue.enqueue_and_wait("a", 1)
    (send,), (run,) = recorder.spans("send mail"), recorder.spans("process mail")
    assert (parent(run), links(run)) == (None, [span_id(send)])


async def in_async_mode(queue: Any, many: int) -> list[str]:
    async with queue:
        results = await queue.enqueue_many([(f"{n}", n) for n in range(many)])
        return [await queue.client.wait(queue.name, result.id) for result in results]


def test_a_batch_is_sent_by_one_span(recorder: Recorder) -> None:
    import asyncio

    queue = pgjq.AsyncQueue("mail", storage=pgjq.MemoryStorage(), concurrency=3)

    @queue.execute
    async def send(job: pgjq.AsyncJob[int]) -> int:
        return job.payload

    recorder.instrument(pgjq.Worker(queue))
    assert asyncio.run(in_async_mode(queue, 3)) == [0, 1, 2]
    (span,) = recorder.spans("send mail")
    assert (span.attributes or {})["messaging.batch.message_count"] == 3
    assert [parent(run) for run in recorder.spans("process mail")] == [span_id(span)] * 3


def test_clients_sql_dead_letters_and_schedules(recorder: Recorder, database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    client = pgjq.Client(storage)
    recorder.instrument(client)
    client.create_queue("graves")
    client.create_queue("mail", dead_letter="graves", retry_limit=0)
    mail, graves = pgjq.Queue("mail", storage=storage), pgjq.Queue("graves", storage=storage)
    done = threading.Semaphore(0)

    @mail.execute
    def send(job: pgjq.Job[str]) -> None:
        if job.payload == "bad":
            raise ValueError(job.payload)

    graves.execute(lambda job: job.payload)
    mail.on("completed", lambda _: done.release())
    graves.on("completed", lambda _: done.release())
    recorder.instrument(mail, graves)
    client.enqueue("mail", "a", "bad")
    client.create_schedule("nightly", "mail", "tick", every=3600)
    client.trigger_schedule("nightly")
    trace = "0af7651916cd43dd8448eb211c80319c"
    with psycopg.connect(database, autocommit=True) as connection:
        headers = f'{{"traceparent": "00-{trace}-b7ad6b7169203331-01"}}'
        connection.execute("select pgjq.enqueue('mail', '\"sql\"', id => 'sql', headers => %s::jsonb)", (headers,))
    with pgjq.Worker(mail, graves):
        for _ in range(3):
            assert done.acquire(timeout=60)
    (sent,) = recorder.spans("send mail")
    runs = {str((span.attributes or {})["messaging.message.id"]): span for span in recorder.spans("process mail")}
    (grave,) = recorder.spans("process graves")
    assert runs["a"].status.status_code is StatusCode.ERROR
    assert parent(runs["a"]) == span_id(sent)
    assert links(grave) == [span_id(sent)]
    assert runs["sql"].context is not None
    assert f"{runs['sql'].context.trace_id:032x}" == trace
    (tick,) = [span for name, span in runs.items() if name.startswith("nightly@")]
    assert (tick.parent, list(tick.links)) == (None, [])
    storage.close()


def test_what_is_not_sampled_runs_as_well() -> None:
    recorder = Recorder(sampler=ALWAYS_OFF)
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    queue.execute(lambda job: job.headers.get("traceparent", ""))
    recorder.instrument(queue)
    with queue:
        assert int(queue.enqueue_and_wait("a", 1)[-2:], 16) & 1 == 0
    assert recorder.exporter.get_finished_spans() == ()
    with pytest.raises(pgjq.ValidationError, match="instrumented already"):
        recorder.instrument(queue)
    recorder.provider.shutdown()
    recorder.meters.shutdown()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_run_whose_sender_is_not_sampled_continues_its_trace_and_is_measured(mode: str) -> None:
    recorder = Recorder(sampler=ParentBased(ALWAYS_OFF))
    storage = pgjq.MemoryStorage()
    seen: list[Any] = []

    def look(job: Any) -> None:
        seen.append((job.headers["traceparent"].split("-")[1], trace.get_current_span().get_span_context()))
        if job.id == "bad":
            raise pgjq.Discard("no")

    async def look_async(job: Any) -> None:
        look(job)

    queue: Any = pgjq.Queue("mail", storage=storage)
    queue.execute(look if mode == "sync" else look_async)
    recorder.instrument(queue)
    with queue:
        queue.enqueue_and_wait("good", 1)
        with pytest.raises(pgjq.JobFailedError):
            queue.enqueue_and_wait("bad", 1)
    for sender, context in seen:
        assert f"{context.trace_id:032x}" == sender
        assert not context.trace_flags.sampled
    assert recorder.exporter.get_finished_spans() == ()
    data: Any = recorder.reader.get_metrics_data()
    (points,) = (
        metric.data.data_points
        for metric in data.resource_metrics[0].scope_metrics[0].metrics
        if metric.name == "messaging.client.consumed.messages"
    )
    assert {point.attributes.get("error.type"): point.value for point in points} == {None: 1, "Discard": 1}
    recorder.provider.shutdown()
    recorder.meters.shutdown()
