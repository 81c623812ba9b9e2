"""Print the trace of a request that enqueues a job, which fails once and enqueues another one.

pip install 'pgjq[otel]' opentelemetry-sdk
python examples/trace_tree.py
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import pgjq
import pgjq.otel

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
tracer = provider.get_tracer("shop")

storage = pgjq.MemoryStorage()
orders = pgjq.Queue("orders", storage=storage)
mail = pgjq.Queue("mail", storage=storage)
pgjq.otel.instrument(orders, mail, tracer_provider=provider)


@mail.task
def receipt(order: int) -> str:
    """Send a receipt."""
    return f"receipt of order {order}"


@orders.task(retry_delay=0, retry_backoff=False)
def charge(order: int) -> str:
    """Charge a card; the first attempt fails."""
    job = pgjq.current_job()
    if job.attempts == 1:
        raise ConnectionError("the bank does not answer")
    with tracer.start_as_current_span("POST /charges"):
        pass
    return receipt.enqueue(order).id


def show(spans: tuple[ReadableSpan, ...]) -> None:
    """Print spans below their parents, and the links of those that have another trace."""
    names = {span.context.span_id: span.name for span in spans if span.context}
    below: defaultdict[int | None, list[ReadableSpan]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: span.start_time or 0):
        below[span.parent.span_id if span.parent else None].append(span)

    def branch(above: int | None, indent: str) -> None:
        for span in below[above]:
            attempt = (span.attributes or {}).get("pgjq.attempt")
            outcome = (span.attributes or {}).get("pgjq.outcome")
            facts = f" (attempt {attempt}: {outcome})" if attempt else ""
            linked = ", ".join(names.get(link.context.span_id, "?") for link in span.links)
            print(f"{indent}{span.name}{facts}{f'  <- {linked}' if linked else ''}")
            branch(span.context.span_id if span.context else None, indent + "  ")

    branch(None, "")


def main() -> None:
    """Make one request, wait for its jobs, and print what happened."""
    with pgjq.Worker(orders, mail):
        with tracer.start_as_current_span("POST /orders", kind=trace.SpanKind.SERVER):
            handle = charge.enqueue(7)
        mail.client.wait("mail", handle.result(timeout=30))
    show(exporter.get_finished_spans())


if __name__ == "__main__":
    main()
