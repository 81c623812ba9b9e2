"""Round trip: from just before `enqueue_and_wait` until its answer, of a no-op in a worker of another process.

Two situations. On an idle queue, one blocking caller asks at random, 30 to 80 ms apart, so the worker has gone to sleep
before each question; two durable commits are in each answer, the enqueue's and the settlement's. With 100 callers,
tasks of one event loop each ask again as soon as they have their answer.
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import contextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import migrated_database, opened
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Sampler, Scale, against_number, interleave
from benchmarks.processes import process

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

PAUSE = (0.03, 0.08)
CALLERS = 100
QUESTIONS = 20
P50 = 3.0
P99 = 10.0
ANSWERS = 2_000


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both situations against the numbers that were promised."""
    worst: list[float] = []
    with _answering(server) as conninfo, opened(conninfo) as storage:
        client = pgjq.Client(storage)

        def ask() -> float:
            taken = _milliseconds(client, scale.pickups)
            worst.append(quantiles(taken, n=100, method="inclusive")[98])
            return median(taken)

        contenders: dict[str, Sampler] = {"one": ask, "many": lambda: asyncio.run(_answers_per_second(conninfo))}
        samples = interleave(contenders, scale.drains)
    rate = f"answers to {CALLERS} callers"
    return [
        against_number(samples["one"], P50, what="round trip on an idle queue, p50", unit="ms", side="at most"),
        against_number(worst[-scale.drains :], P99, what="the same, p99", unit="ms", side="at most"),
        against_number(samples["many"], ANSWERS, what=rate, unit="jobs/s"),
    ]


def _milliseconds(client: pgjq.Client, count: int) -> Sequence[float]:
    taken: list[float] = []
    for number in range(count):
        time.sleep(random.uniform(*PAUSE))  # noqa: S311
        start = time.perf_counter()
        assert client.enqueue_and_wait(QUEUE, None, number) == number
        taken.append((time.perf_counter() - start) * 1000)
    return taken


async def _answers_per_second(conninfo: str) -> float:
    async with pgjq.AsyncClient(pgjq.PostgresStorage(conninfo)) as client:
        await client.enqueue_and_wait(QUEUE, None, 0)
        start = time.perf_counter()
        await asyncio.gather(*(_ask_on(client, caller) for caller in range(CALLERS)))
        return CALLERS * QUESTIONS / (time.perf_counter() - start)


async def _ask_on(client: pgjq.AsyncClient, caller: int) -> None:
    for number in range(QUESTIONS):
        asked = [caller, number]
        assert await client.enqueue_and_wait(QUEUE, None, asked) == asked


@contextmanager
def _answering(server: EmbeddedServer) -> Generator[str]:
    with migrated_database(server, "round_trip") as conninfo, process(_answer, conninfo) as worker:
        assert worker.recv() == "working"
        yield conninfo


def _answer(orders: Connection, conninfo: str) -> None:
    """Answer every question with its payload, until told to end."""

    async def echo(job: pgjq.AsyncJob) -> object:
        return job.payload

    storage = pgjq.PostgresStorage(conninfo)
    queue = pgjq.Queue(QUEUE, storage=storage, concurrency=CALLERS)
    queue.execute(echo)
    with queue:
        orders.send("working")
        while orders.recv() is not None:
            pass
    storage.close()
