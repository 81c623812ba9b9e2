"""Celery on Redis: a worker in threads in this process, without prefetching limits, JSON, results in Redis."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import redis
from celery import Celery
from protocol import CONCURRENCY, Contender, main


class CeleryContender(Contender):
    package = "celery"
    kinds = ("plain", "work")
    settings = f"Redis, threads pool of {CONCURRENCY}, prefetch multiplier 10, results only in calls"

    async def setup(self) -> None:
        self.app = Celery("bench", broker=self.address, backend=self.address)
        self.app.set_default()  # The current app is that of a thread, and the worker has threads of its own.
        self.app.conf.update(worker_prefetch_multiplier=10, worker_hijack_root_logger=False)
        self.redis = redis.Redis.from_url(self.address)

        @self.app.task(name="plain", ignore_result=True)
        def plain(number: int) -> int:
            return self.run_plain(number)

        @self.app.task(name="work", ignore_result=True)
        def work(number: int) -> int:
            return self.run_plain_work(number)

        @self.app.task(name="call")
        def call(number: int) -> int:
            return number

        self.tasks = {"coroutine": plain, "plain": plain, "work": work, "call": call}
        self.kind = "plain"

    async def enqueue(self, number: int) -> None:
        self.tasks["plain"].delay(number)

    async def enqueue_many(self, numbers: range) -> None:
        with self.app.producer_pool.acquire() as producer:
            for number in numbers:
                self.tasks[self.kind].apply_async((number,), producer=producer)

    async def start(self, kind: str) -> None:
        from celery.worker import WorkController

        if kind == "work":
            await self._become("work")
        self.worker = WorkController(
            app=self.app, pool_cls="threads", concurrency=CONCURRENCY, without_gossip=True, without_mingle=True,
            without_heartbeat=True, loglevel="ERROR",
        )  # fmt: skip
        self.thread = threading.Thread(target=self.worker.start, daemon=True)
        self.thread.start()

    async def _become(self, kind: str) -> None:
        """Enqueue the waiting jobs anew as another task: the name is in the message."""
        count = self.redis.llen("celery")
        await self.empty()
        self.kind = kind
        await self.enqueue_many(range(count))
        self.kind = "plain"

    async def stop(self) -> None:
        self.worker.stop()
        await asyncio.to_thread(self.thread.join, 10)

    async def left(self) -> int:
        return self.redis.llen("celery") + self.redis.hlen("unacked")

    async def empty(self) -> None:
        self.redis.flushdb()

    async def call(self, number: int) -> Any:
        return await asyncio.to_thread(self.tasks["call"].delay(number).get, timeout=30, disable_sync_subtasks=False)


if __name__ == "__main__":
    main(CeleryContender)
