"""Delays: how late jobs with a `run_at` begin, against timers of a bare event loop with the same due times.

A worker of a hundred coroutines is asleep when the jobs are enqueued; all of them are due later, at random over some
seconds. It sleeps until its storage wakes it: its `block_timeout` is longer than the measurement, so that no polling
hides a wake-up that is missing. The floor is `loop.call_at` for the same moments, in a loop that does nothing else.
Lateness is the time from when a job is due until its handler begins.

A job that has not begun some seconds after the last one was due counts as late as that, and the row says how many there
were. Each sample has a storage, or at least a queue, of its own.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pgjq
from benchmarks.databases import migrated_database
from benchmarks.measure import Finding, Samples, Scale, compare, interleave
from benchmarks.redis_servers import redis_url, valkey_url

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from pgjq.embedded import EmbeddedServer
    from pgjq.storage.base import Storage

    Play = Callable[[Sequence[float]], Awaitable[list[float]]]

COUNT = 1_000
CONCURRENCY = 100
SECONDS = 3.0
# Enqueueing a thousand jobs takes time, and none of them may be due before that is over.
HEAD_START = 1.5
PATIENCE = 5.0
FALL_ASLEEP = 0.5
NEVER_POLL = 600.0


class Contender:
    """Plays the same due times in every round, and remembers what its samples do not say."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self._worst: list[float] = []
        self.missing = 0

    def sample(self) -> float:
        """Return the median lateness of a thousand jobs, in milliseconds."""
        late = asyncio.run(self._play(_due_times()))
        self.missing += COUNT - len(late)
        late += [PATIENCE * 1000] * (COUNT - len(late))
        cuts = quantiles(late, n=100, method="inclusive")
        self._worst.append(cuts[98])
        return cuts[49]

    def worst(self, rounds: int) -> list[float]:
        """Return the 99th percentile of each of the last rounds."""
        return self._worst[-rounds:]


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure every storage by turns with the timers."""
    found: list[Finding] = []
    with ExitStack() as stack:
        redis, valkey = stack.enter_context(redis_url()), stack.enter_context(valkey_url())
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pgjq-bench-")))
        conninfo = stack.enter_context(migrated_database(server, "delays"))
        storages: dict[str, Callable[[], Storage]] = {
            "PostgreSQL": lambda: pgjq.PostgresStorage(conninfo),
            "Redis": lambda: pgjq.RedisStorage(redis, prefix=uuid4().hex),
            "File": lambda: pgjq.FileStorage(place / uuid4().hex),
            "Memory": pgjq.MemoryStorage,
        }
        if valkey is not None:
            storages["Valkey"] = lambda: pgjq.RedisStorage(valkey, prefix=uuid4().hex)
        for name, make in storages.items():
            found += _compared(name, Contender(partial(_run_jobs, make)), scale)
    return found


def _compared(name: str, ours: Contender, scale: Scale) -> list[Finding]:
    floor = Contender(_run_timers)
    middle = interleave({"pgjq": ours.sample, "timers": floor.sample}, scale.drains)
    worst: Samples = {"pgjq": ours.worst(scale.drains), "timers": floor.worst(scale.drains)}
    said = f" ({ours.missing:,} of {COUNT * (scale.drains + 1):,} jobs never ran)" if ours.missing else ""
    return [
        compare(
            samples,
            "pgjq",
            "timers",
            what=f"{name}: lateness of 1,000 delayed jobs, {which}{said}",
            against="call_at",
            unit="ms",
            target=None,
        )
        for which, samples in (("p50", middle), ("p99", worst))
    ]


def _due_times() -> list[float]:
    """Return when the jobs are due, as seconds from now, in the order of enqueueing, which is not that of time."""
    chance = random.Random(1)  # noqa: S311
    return [HEAD_START + chance.uniform(0, SECONDS) for _ in range(COUNT)]


async def _run_timers(due_times: Sequence[float]) -> list[float]:
    loop = asyncio.get_running_loop()
    late: list[float] = []
    begun, ended = loop.time(), asyncio.Event()

    def note(due: float) -> None:
        late.append((loop.time() - due) * 1000)
        if len(late) == len(due_times):
            ended.set()

    for seconds in due_times:
        loop.call_at(begun + seconds, note, begun + seconds)
    await ended.wait()
    return late


async def _run_jobs(make: Callable[[], Storage], due_times: Sequence[float]) -> list[float]:
    late: list[float] = []
    ended = asyncio.Event()
    with closing(make()) as storage:
        name = f"bench-{uuid4().hex[:8]}"
        queue = pgjq.AsyncQueue(name, storage=storage, concurrency=CONCURRENCY, block_timeout=NEVER_POLL)

        @queue.execute
        async def note(job: pgjq.AsyncJob) -> None:
            if job.payload is None:
                return
            late.append((time.time() - job.payload) * 1000)
            if len(late) == len(due_times):
                ended.set()

        await queue.start()
        await queue.enqueue_and_wait(None, None)
        await asyncio.sleep(FALL_ASLEEP)
        begun = time.time()
        await queue.enqueue_many(_job(begun + seconds) for seconds in due_times)
        try:
            async with asyncio.timeout(HEAD_START + SECONDS + PATIENCE):
                await ended.wait()
        except TimeoutError:
            pass  # What has not run is reported.
        await queue.stop(grace=1)
        await storage.operations("async").close()
    return late[: len(due_times)]


def _job(due: float) -> pgjq.NewJob[Any]:
    return pgjq.NewJob(None, due, run_at=datetime.fromtimestamp(due, UTC))
