"""What metrics and traces cost: one worker drains a backlog plain, measured and scraped every second, or traced at 1 %.

All drain on one event loop in this process, by turns. Handlers return at once, so that the share of the overhead is as
large as it can be.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio
from prometheus_client import CollectorRegistry, generate_latest

import pgjq
import pgjq.otel
import pgjq.prometheus
from benchmarks.databases import migrated_database, opened, run_statement
from benchmarks.measure import Finding, Scale, Target, compare, interleave

if TYPE_CHECKING:
    from pgjq.embedded import EmbeddedServer

BATCH = 1_000
CONCURRENCY = 100
SCRAPE_SECONDS = 1.0
SAMPLED = 0.01


def drain(conninfo: str, count: int, how: str) -> float:
    """Return the jobs per second that a worker completes."""
    return asyncio.run(_drain(conninfo, count, how))


async def _drain(conninfo: str, count: int, how: str) -> float:
    run_statement(conninfo, "truncate")
    with opened(conninfo) as storage:
        queue = pgjq.AsyncQueue("bench", storage=storage, concurrency=CONCURRENCY)
        ended, done = asyncio.Event(), 0

        @queue.execute
        async def handle(job: pgjq.AsyncJob) -> Any:
            nonlocal done
            done += 1
            if done == count:
                ended.set()
            return job.payload

        registry, provider = CollectorRegistry(), TracerProvider(sampler=ParentBasedTraceIdRatio(SAMPLED))
        if how == "metrics":
            pgjq.prometheus.instrument(queue, registry=registry)
            registry.register(pgjq.prometheus.Collector(storage, max_age=SCRAPE_SECONDS / 2))
        elif how == "traces":
            provider.add_span_processor(BatchSpanProcessor(InMemorySpanExporter()))
            pgjq.otel.instrument(queue, tracer_provider=provider)
        for start in range(0, count, BATCH):
            await queue.enqueue_many([(None, n) for n in range(start, start + BATCH)])
        run_statement(conninfo, "vacuum")
        scraper = asyncio.create_task(_scrape(registry))
        began = time.perf_counter()
        async with queue:
            await ended.wait()
        seconds = time.perf_counter() - began
        scraper.cancel()
        provider.shutdown()
        await storage.operations("async").close()
    return count / seconds


async def _scrape(registry: CollectorRegistry) -> None:
    """Scrape as a server does; without collectors this costs nothing."""
    while True:
        await asyncio.sleep(SCRAPE_SECONDS)
        await asyncio.to_thread(generate_latest, registry)


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure all three by turns."""
    with migrated_database(server, "observability") as conninfo:
        sides = {how: lambda how=how: drain(conninfo, scale.drained, how) for how in ("plain", "metrics", "traces")}
        drains = interleave(sides, scale.rounds)
    against = "without either"
    return [
        compare(
            drains, "metrics", "plain", what="drain with metrics", against=against, unit="jobs/s", target=Target(0.97)
        ),
        compare(
            drains, "traces", "plain", what="drain with traces", against=against, unit="jobs/s", target=Target(0.95)
        ),
    ]
