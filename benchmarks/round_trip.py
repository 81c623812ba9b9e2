"""Round trips of 100 callers at once: tasks of one event loop, each asks again as soon as it has its answer.

The round trip of one caller is in `latency`, beside the pickup and the bare commit that it consists of.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import migrated_database
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Scale, against_number, interleave
from benchmarks.processes import process
from benchmarks.workers import echo

if TYPE_CHECKING:
    from pgjq.embedded import EmbeddedServer

CALLERS = 100
QUESTIONS = 20
ANSWERS = 2_000


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure it against the number that was promised."""
    with migrated_database(server, "round_trip") as conninfo, process(echo, conninfo) as worker:
        assert worker.recv() == "working"
        samples = interleave({"many": lambda: asyncio.run(_answers_per_second(conninfo))}, scale.drains)
    return [against_number(samples["many"], ANSWERS, what=f"answers to {CALLERS} callers", unit="jobs/s")]


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
