"""Tasks against the same handler by hand: one queue with a task, one with a handler that finds the function itself.

The payloads are the same on both sides. By hand the function gets the arguments as they are; a task checks them against
the signature when they are enqueued, and again when it runs. Both drain a backlog on one event loop in this process,
by turns, and enqueue a thousand jobs a call.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pgjq
from benchmarks.databases import migrated_database, opened, run_statement
from benchmarks.measure import Finding, Scale, Target, compare, interleave

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.embedded import EmbeddedServer

BATCH = 1_000
CONCURRENCY = 100
WITHIN = Target(0.9)


class Side:
    """A queue that handles receipts, as a task or by hand."""

    def __init__(self, conninfo: str, *, by_hand: bool) -> None:
        self._conninfo = conninfo
        self._by_hand = by_hand

    def drain(self, count: int) -> float:
        """Return the jobs per second that a worker completes."""
        return asyncio.run(self._drain(count))

    async def _drain(self, count: int) -> float:
        run_statement(self._conninfo, "truncate")
        with opened(self._conninfo) as storage:
            queue, task, left = self._queue(storage, count)
            for jobs in self._batches(task, count):
                await queue.enqueue_many(jobs)
            run_statement(self._conninfo, "vacuum")
            began = time.perf_counter()
            async with queue:
                await left.wait()
            seconds = time.perf_counter() - began
            await storage.operations("async").close()
        return count / seconds

    def enqueue(self, count: int) -> float:
        """Return the jobs per second that a producer enqueues."""
        return asyncio.run(self._enqueue(count))

    async def _enqueue(self, count: int) -> float:
        run_statement(self._conninfo, "truncate")
        with opened(self._conninfo) as storage:
            queue, task, _ = self._queue(storage, count)
            await queue.send(1)
            began = time.perf_counter()
            for jobs in self._batches(task, count):
                await queue.enqueue_many(jobs)
            seconds = time.perf_counter() - began
            await storage.operations("async").close()
        return count / seconds

    def _queue(self, storage: Any, count: int) -> tuple[pgjq.AsyncQueue, Any, asyncio.Event]:
        queue = pgjq.AsyncQueue("bench", storage=storage, concurrency=CONCURRENCY)
        ended, done = asyncio.Event(), 0

        async def receipt(order: int, email: str, *, copy: bool = False) -> int:
            nonlocal done
            done += 1
            if done == count:
                ended.set()
            return order + copy + len(email)

        if not self._by_hand:
            return queue, queue.task(receipt), ended
        routes = {"receipt": receipt}

        @queue.execute
        async def handle(job: pgjq.AsyncJob) -> Any:
            payload = job.payload
            return await routes[payload["task"]](*payload["args"], **payload["kwargs"])

        return queue, None, ended

    def _batches(self, task: Any, count: int) -> Iterable[list[Any]]:
        for start in range(0, count, BATCH):
            numbers = range(start, min(start + BATCH, count))
            if task is None:
                yield [(None, {"task": "receipt", "args": [n, f"c{n}@example.com"], "kwargs": {}}) for n in numbers]
            else:
                yield [task.call(n, f"c{n}@example.com") for n in numbers]


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both sides by turns."""
    with migrated_database(server, "tasks") as conninfo:
        task, hand = Side(conninfo, by_hand=False), Side(conninfo, by_hand=True)
        drains = interleave(
            {"task": lambda: task.drain(scale.drained), "hand": lambda: hand.drain(scale.drained)}, scale.rounds
        )
        enqueues = interleave(
            {"task": lambda: task.enqueue(scale.bulk), "hand": lambda: hand.enqueue(scale.bulk)}, scale.rounds
        )
    against = "the same function behind a handler by hand"
    return [
        compare(drains, "task", "hand", what="drain a task", against=against, unit="jobs/s", target=WITHIN),
        compare(enqueues, "task", "hand", what="enqueue a task", against=against, unit="jobs/s", target=WITHIN),
    ]
