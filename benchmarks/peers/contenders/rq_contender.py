"""RQ on Redis: SimpleWorker, which runs jobs in its own process, one at a time; enqueue_many in pipelines."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import redis
import rq
from protocol import WORK, Contender, main
from rq.timeouts import BaseDeathPenalty

CURRENT: list[Rq] = []


def run(number: int) -> int:
    """Be the handler: RQ finds it by its name."""
    return CURRENT[0].run_plain(number)


def run_work(number: int) -> int:
    """Be the handler that waits."""
    time.sleep(WORK)
    return CURRENT[0].run_plain(number)


class NoTimeout(BaseDeathPenalty):
    """Jobs without a time limit: RQ's own sets a signal handler for each job."""

    def setup_death_penalty(self) -> None:
        pass

    def cancel_death_penalty(self) -> None:
        pass


class QuietWorker(rq.SimpleWorker):
    """A worker beside others in a process: only the main thread may set signal handlers."""

    death_penalty_class = NoTimeout

    def _install_signal_handlers(self) -> None:
        pass


class Rq(Contender):
    package = "rq"
    kinds = ("plain", "work")
    settings = "Redis, SimpleWorker (one job at a time, no fork, no time limit), enqueue_many"

    async def setup(self) -> None:
        CURRENT.append(self)
        self.redis = redis.Redis.from_url(self.address)
        self.queue = rq.Queue("bench", connection=self.redis)
        self.function: Any = run

    async def enqueue(self, number: int) -> None:
        self.queue.enqueue(run, number, result_ttl=60)

    async def enqueue_many(self, numbers: range) -> None:
        for start in range(0, len(numbers), 1000):
            part = numbers[start : start + 1000]
            self.queue.enqueue_many([self.queue.prepare_data(self.function, (n,), result_ttl=60) for n in part])

    async def start(self, kind: str) -> None:
        if kind == "work":
            count = self.queue.count
            await self.empty()
            self.function = run_work
            await self.enqueue_many(range(count))
            self.function = run
        self.worker = QuietWorker([self.queue], connection=redis.Redis.from_url(self.address))
        options = {"logging_level": "ERROR", "with_scheduler": False}
        self.thread = threading.Thread(target=self.worker.work, kwargs=options, daemon=True)
        self.thread.start()

    async def stop(self) -> None:
        self.worker._stop_requested = True  # noqa: SLF001  (its own way is a signal)
        await asyncio.to_thread(self.queue.enqueue, run, -1)  # It looks when it gets a job.
        await asyncio.to_thread(self.thread.join, 10)

    async def left(self) -> int:
        return self.queue.count + self.queue.started_job_registry.count

    async def empty(self) -> None:
        self.redis.flushdb()

    async def call(self, number: int) -> Any:
        job = self.queue.enqueue(run, number, result_ttl=60)
        return await asyncio.to_thread(job.latest_result, timeout=30)


if __name__ == "__main__":
    import sys

    sys.modules["rq_contender"] = sys.modules["__main__"]  # RQ imports handlers by name.
    run.__module__ = run_work.__module__ = "rq_contender"
    main(Rq)
