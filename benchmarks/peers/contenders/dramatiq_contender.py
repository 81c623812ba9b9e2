"""Dramatiq on Redis: a worker with 50 threads in this process; results by its Results middleware."""

from __future__ import annotations

import asyncio
from typing import Any

import dramatiq
import redis
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend
from protocol import CONCURRENCY, Contender, main


class Dramatiq(Contender):
    package = "dramatiq"
    kinds = ("plain", "work")
    settings = f"Redis, {CONCURRENCY} threads, one message per enqueue (it has no bulk enqueue)"

    async def setup(self) -> None:
        self.broker = RedisBroker(url=self.address)
        self.broker.add_middleware(Results(backend=RedisBackend(url=self.address)))
        dramatiq.set_broker(self.broker)
        self.redis = redis.Redis.from_url(self.address)
        self.plain = dramatiq.actor(self.run_plain, actor_name="plain", broker=self.broker)
        self.work = dramatiq.actor(self.run_plain_work, actor_name="work", broker=self.broker)
        self.answer = dramatiq.actor(lambda number: number, actor_name="answer", broker=self.broker, store_results=True)
        self.actor = self.plain

    async def enqueue(self, number: int) -> None:
        self.plain.send(number)

    async def enqueue_many(self, numbers: range) -> None:
        for number in numbers:
            self.actor.send(number)

    async def start(self, kind: str) -> None:
        if kind == "work":
            count = self.redis.llen("dramatiq:default")
            await self.empty()
            self.actor = self.work
            await self.enqueue_many(range(count))
            self.actor = self.plain
        self.worker = dramatiq.Worker(self.broker, worker_threads=CONCURRENCY, worker_timeout=100)
        self.worker.start()

    async def stop(self) -> None:
        await asyncio.to_thread(self.worker.stop)

    async def left(self) -> int:
        return self.redis.hlen("dramatiq:default.msgs")

    async def empty(self) -> None:
        self.redis.flushdb()

    async def call(self, number: int) -> Any:
        message = self.answer.send(number)
        return await asyncio.to_thread(message.get_result, block=True, timeout=30_000)


if __name__ == "__main__":
    main(Dramatiq)
