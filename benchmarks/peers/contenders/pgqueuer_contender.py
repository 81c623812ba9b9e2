"""PgQueuer: asyncpg and uvloop, lists for bulk enqueues, batches of 500 for the worker."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import asyncpg
from pgqueuer.core.qm import QueueManager
from pgqueuer.queries import Queries
from protocol import Contender, main

BATCH = 500


class PgQueuer(Contender):
    package = "pgqueuer"
    settings = f"asyncpg, uvloop, batches of 1,000 to enqueue and of {BATCH} to work"

    async def setup(self) -> None:
        self.connection = await asyncpg.connect(self.address)
        self.queries = Queries.from_asyncpg_connection(self.connection)
        await self.queries.install()
        self.manager: Any = None

    async def enqueue(self, number: int) -> None:
        await self.queries.enqueue("bench", str(number).encode())

    async def enqueue_many(self, numbers: range) -> None:
        for start in range(0, len(numbers), 1000):
            part = [str(number).encode() for number in numbers[start : start + 1000]]
            await self.queries.enqueue(["bench"] * len(part), part, [0] * len(part))

    async def start(self, kind: str) -> None:
        self.own = await asyncpg.connect(self.address)
        self.manager = QueueManager(Queries.from_asyncpg_connection(self.own))

        @self.manager.entrypoint("bench")
        async def handle(job: Any) -> None:
            if kind == "plain":  # As its documentation says: entrypoints are coroutines.
                await asyncio.to_thread(self.run_plain, int(job.payload))
            else:
                await (self.run_work if kind == "work" else self.run)(int(job.payload))

        self.task = asyncio.create_task(self.manager.run(batch_size=BATCH, log_aggregation_interval=timedelta(0)))
        await asyncio.sleep(0)

    async def stop(self) -> None:
        self.manager.shutdown.set()
        await self.task
        await self.own.close()

    async def left(self) -> int:
        return await self.connection.fetchval("select count(*) from pgqueuer")

    async def empty(self) -> None:
        await self.connection.execute("truncate pgqueuer, pgqueuer_log")


if __name__ == "__main__":
    main(PgQueuer, uvloop=True)
