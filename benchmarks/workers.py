"""Worker processes of pgjq, each of them one `Queue` as a user would write it, and the floor under them.

What a worker has done is counted where it settles: an `on("completed")` callback would have an event made for each job,
which nobody pays who does not ask for it. The clock stops when the answer to the last settle is there.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import pgjq
from benchmarks.jobs import QUEUE
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from multiprocessing.connection import Connection

    from pgjq.storage.base import Claimed, Operations, Settled

Kind = Literal["coroutine", "plain"]

CONCURRENCY: dict[Kind, int] = {"coroutine": 100, "plain": 10}
FLOOR_BATCH = 500


@dataclass(frozen=True, slots=True)
class Drained:
    """How a backlog went: jobs a second, and how many jobs went into a claim and a settle on average."""

    rate: float
    claim: float
    settle: float


@dataclass(slots=True)
class Counter:
    """Counts what one storage's worker claims and settles."""

    operations: Any
    wanted: int = 0
    settled: int = 0
    claims: list[int] = field(default_factory=list[int])
    settles: list[int] = field(default_factory=list[int])
    finished: float = 0.0
    done: threading.Event = field(default_factory=threading.Event)

    def attach(self) -> None:
        """Count from now on, by standing in for two operations."""
        claim, settle = self.operations.claim, self.operations.settle

        async def counted_claim(*arguments: Any, **options: Any) -> list[Claimed]:
            claimed = await claim(*arguments, **options)
            if claimed:
                self.claims.append(len(claimed))
            return claimed

        async def counted_settle(settlements: Sequence[Settlement]) -> list[Settled]:
            answers = await settle(settlements)
            self.settles.append(len(answers))
            self.settled += len(answers)
            if self.settled >= self.wanted:
                self.finished = time.perf_counter()
                self.done.set()
            return answers

        self.operations.claim, self.operations.settle = counted_claim, counted_settle

    def result_waiter(self, more: int) -> None:
        """Begin to wait for some more jobs."""
        self.done.clear()
        self.claims.clear()
        self.settles.clear()
        self.wanted = self.settled + more


async def _coroutine(job: pgjq.AsyncJob) -> Any:
    return {"order": job.payload["order"]}


def _plain(job: pgjq.Job) -> Any:
    return {"order": job.payload["order"]}


async def _size_of(job: pgjq.AsyncJob) -> int:
    return len(job.payload)


def drain(orders: Connection, conninfo: str, kind: Kind) -> None:
    """Complete as many jobs as an order says, and answer how that went."""
    storage = pgjq.PostgresStorage(conninfo)
    counter = Counter(storage.operations("async"))
    counter.attach()
    queue = pgjq.Queue(QUEUE, storage=storage, concurrency=CONCURRENCY[kind])
    queue.execute(_coroutine if kind == "coroutine" else _plain)
    count: int | None
    while (count := orders.recv()) is not None:
        counter.result_waiter(count)
        start = time.perf_counter()
        queue.start()
        counter.done.wait()
        queue.stop()
        claims, settles = counter.claims, counter.settles
        rate = count / (counter.finished - start)
        orders.send(Drained(rate, sum(claims) / len(claims), sum(settles) / len(settles)))
    storage.close()


def drain_bare(orders: Connection, conninfo: str) -> None:
    """Claim and settle on one connection, one after the other, with no handler, no lease to renew and no JSON."""
    storage = pgjq.PostgresStorage(conninfo, min_size=1, max_size=1)
    operations = storage.operations("sync")
    count: int | None
    while (count := orders.recv()) is not None:
        start = time.perf_counter()
        done = 0
        while done < count:
            done += claim_and_settle(operations)
        orders.send(Drained(count / (time.perf_counter() - start), FLOOR_BATCH, FLOOR_BATCH))
    storage.close()


def claim_and_settle(operations: Operations) -> int:
    """Claim a batch and complete it; return how many jobs it had."""
    claimed = drive(operations.claim([QUEUE], worker="bench", limit=FLOOR_BATCH, policy=pgjq.LeasePolicy()))
    drive(operations.settle([Settlement(job.lease, Completed(b'{"order":1}')) for job in claimed]))
    return len(claimed)


def serve(orders: Connection, conninfo: str) -> None:
    """Work all the time, and answer to each number of jobs when as many more have been completed."""
    storage = pgjq.PostgresStorage(conninfo)
    counter = Counter(storage.operations("async"))
    counter.attach()
    queue = pgjq.Queue(QUEUE, storage=storage, concurrency=CONCURRENCY["coroutine"])
    queue.execute(_size_of)
    with queue:
        count: int | None
        while (count := orders.recv()) is not None:
            counter.result_waiter(count)
            orders.send(os.getpid())
            counter.done.wait()
            orders.send("done")
    storage.close()


def note_starts(orders: Connection, conninfo: str) -> None:
    """Work all the time; answer to an order when each job's handler began, by the number that is its payload."""
    starts: dict[int, int] = {}

    async def note(job: pgjq.AsyncJob) -> None:
        starts[job.payload] = time.monotonic_ns()

    storage = pgjq.PostgresStorage(conninfo)
    queue = pgjq.Queue(QUEUE, storage=storage, concurrency=10)
    queue.execute(note)
    with queue:
        orders.send("working")
        while orders.recv() is not None:
            orders.send(dict(starts))
            starts.clear()
    storage.close()


def idle(orders: Connection, conninfo: str) -> None:
    """Wait for jobs that do not come; say which process does so."""

    async def nothing(job: pgjq.AsyncJob) -> None:
        del job

    storage = pgjq.PostgresStorage(conninfo)
    queue = pgjq.Queue(QUEUE, storage=storage, concurrency=10)
    queue.execute(nothing)
    with queue:
        orders.send(os.getpid())
        orders.recv()
    storage.close()


def echo(orders: Connection, conninfo: str) -> None:
    """Answer every job with its payload, until told to end."""

    async def answer(job: pgjq.AsyncJob) -> object:
        return job.payload

    storage = pgjq.PostgresStorage(conninfo)
    queue = pgjq.Queue(QUEUE, storage=storage, concurrency=CONCURRENCY["coroutine"])
    queue.execute(answer)
    with queue:
        orders.send("working")
        while orders.recv() is not None:
            pass
    storage.close()


def hold(orders: Connection, conninfo: str, kind: Kind) -> None:
    """Hold on to every job; tell when one began. Start when told "start", stop at once when told "stop"."""

    async def hold_on(job: pgjq.AsyncJob) -> None:
        del job
        orders.send(time.monotonic_ns())
        await asyncio.Event().wait()

    def hold_in_thread(job: pgjq.Job) -> None:
        orders.send(time.monotonic_ns())
        job.signal.wait()

    storage = pgjq.PostgresStorage(conninfo)
    queue = pgjq.Queue(QUEUE, storage=storage)
    queue.execute(hold_on if kind == "coroutine" else hold_in_thread)
    acts: dict[str, Callable[[], None]] = {"start": queue.start, "stop": lambda: queue.stop(grace=0)}
    order: str | None
    while (order := orders.recv()) is not None:
        told = time.monotonic_ns()
        acts[order]()
        orders.send(told)
    queue.stop(grace=0)
    storage.close()
