"""Tasks against the same handler by hand: one queue with a task, one with a handler that finds the function itself.

The payloads are the same on both sides. By hand the function gets the arguments as they are; a task checks them against
the signature when they are enqueued, and again when it runs. Both drain a backlog on one event loop in this process,
by turns, and enqueue a thousand jobs a call.

A queue without tasks pays for looking whether a payload names one, and for finding the handler of that name. It is
measured against itself with the first taken out; the second is a lookup in an empty dict.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import pgjq
from benchmarks.databases import migrated_database, opened, run_statement
from benchmarks.measure import Finding, Scale, Target, compare, interleave

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.embedded import EmbeddedServer

BATCH = 1_000
CONCURRENCY = 100
WITH_TASKS = Target(0.9)
WITHOUT_TASKS = Target(0.97)


class Side:
    """A queue that handles receipts, as a task or by hand."""

    def __init__(self, conninfo: str, *, by_hand: bool, key: str = "task", looks: bool = True) -> None:
        self._conninfo = conninfo
        self._by_hand = by_hand
        self._key = key  # Of the function's name in a payload.
        self._looks = looks

    def drain(self, count: int) -> float:
        """Return the jobs per second that a worker completes."""
        with self._looking():
            return asyncio.run(self._drain(count))

    def _looking(self) -> AbstractContextManager[Any]:
        """Have no job's payload looked at for the name of a task, if this side does not."""
        return nullcontext() if self._looks else patch("pgjq.client.task_name", _no_task)

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
        with self._looking():
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
            return await routes[payload[self._key]](*payload["args"], **payload["kwargs"])

        return queue, None, ended

    def _batches(self, task: Any, count: int) -> Iterable[list[Any]]:
        for start in range(0, count, BATCH):
            numbers = range(start, min(start + BATCH, count))
            if task is None:
                yield [(None, {self._key: "receipt", "args": [n, f"c{n}@example.com"], "kwargs": {}}) for n in numbers]
            else:
                yield [task.call(n, f"c{n}@example.com") for n in numbers]


def _no_task(_payload: Any) -> None:
    """Find no task in a payload."""


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure the sides by turns."""
    with migrated_database(server, "tasks") as conninfo:
        sides = {
            "task": Side(conninfo, by_hand=False),
            "hand": Side(conninfo, by_hand=True),
            "none": Side(conninfo, by_hand=True, key="name"),
            "blind": Side(conninfo, by_hand=True, key="name", looks=False),
        }
        drains = interleave({name: partial(side.drain, scale.drained) for name, side in sides.items()}, scale.rounds)
        enqueues = interleave({name: partial(side.enqueue, scale.bulk) for name, side in sides.items()}, scale.rounds)
    return [
        compare(samples, ours, theirs, what=f"{verb} {what}", against=against, unit="jobs/s", target=target)
        for verb, samples in (("drain", drains), ("enqueue", enqueues))
        for ours, theirs, what, against, target in (
            ("task", "hand", "a task", "the same function behind a handler by hand", WITH_TASKS),
            ("none", "blind", "in a queue without tasks", "the same without looking for a task", WITHOUT_TASKS),
        )
    ]
