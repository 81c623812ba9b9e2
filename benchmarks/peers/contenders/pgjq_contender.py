"""pgjq: AsyncQueue, its pool and its worker with their defaults but for the concurrency."""

from __future__ import annotations

from typing import Any

from protocol import CONCURRENCY, Contender, main

import pgjq


class Pgjq(Contender):
    package = "pgjq"
    settings = f"AsyncQueue, concurrency {CONCURRENCY}, JSON payloads, generated ids"

    async def setup(self) -> None:
        pgjq.migrate(self.address)
        self.storage = pgjq.PostgresStorage(self.address)
        self.client = pgjq.AsyncClient(self.storage)
        self.queue: Any = None

    async def enqueue(self, number: int) -> None:
        await self.client.enqueue("bench", None, number)

    async def enqueue_many(self, numbers: range) -> None:
        await self.client.enqueue_many("bench", [(None, number) for number in numbers])

    async def start(self, kind: str) -> None:
        self.queue = pgjq.AsyncQueue("bench", storage=self.storage, concurrency=CONCURRENCY)
        run = {"coroutine": self.run, "plain": self.run_plain, "work": self.run_work}[kind]
        if kind == "plain":
            self.queue.execute(lambda job: run(job.payload))
        else:

            async def handle(job: Any) -> int:
                return await run(job.payload)

            self.queue.execute(handle)
        await self.queue.start()

    async def stop(self) -> None:
        await self.queue.stop()

    async def left(self) -> int:
        stats = await self.client.get_queue_stats("bench")
        return stats.queued + stats.processing + stats.failing

    async def empty(self) -> None:
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as connection:
            connection.execute("truncate pgjq.job, pgjq.body, pgjq.done, pgjq.progress, pgjq.attempt")

    async def call(self, number: int) -> Any:
        return await self.client.enqueue_and_wait("bench", None, number)


if __name__ == "__main__":
    main(Pgjq)
