"""awa-pg: its Rust runtime with Python handlers, COPY for bulk enqueues."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import awa
from protocol import CONCURRENCY, Contender, main
from psycopg.conninfo import conninfo_to_dict


@dataclass
class Bench:
    number: int


class Awa(Contender):
    package = "awa-pg"
    kinds = ("coroutine", "work")
    settings = f"queue storage, enqueue_many_copy, {CONCURRENCY} workers"

    async def setup(self) -> None:
        where = conninfo_to_dict(self.address)  # Its driver wants the directory of the socket in the place of a host.
        host, user, database = (quote(str(where[name]), safe="") for name in ("host", "user", "dbname"))
        self.address = f"postgresql://{user}@{host}/{database}"
        self.client = awa.AsyncClient(self.address)
        await self.client.migrate()
        await self.client.install_queue_storage()
        self.count = 0
        self.worker: Any = None

    async def enqueue(self, number: int) -> None:
        await self.client.insert(Bench(number), queue="bench")
        self.count += 1

    async def enqueue_many(self, numbers: range) -> None:
        for start in range(0, len(numbers), 10_000):
            part = numbers[start : start + 10_000]
            self.count += await self.client.enqueue_many_copy([Bench(n) for n in part], queue="bench")

    async def start(self, kind: str) -> None:
        self.worker = awa.AsyncClient(self.address)
        run = self.run_work if kind == "work" else self.run

        @self.worker.task(Bench, queue="bench")
        async def handle(job: Any) -> None:
            await run(job.args.number)

        await self.worker.start([("bench", CONCURRENCY)])

    async def stop(self) -> None:
        await self.worker.shutdown()
        await self.worker.close()

    async def left(self) -> int:
        await self.client.flush_admin_metadata()  # The counters are a cache: a stale one would cost it time.
        stats = [stat for stat in await self.client.queue_stats() if stat.queue == "bench"]
        return sum(stat.total_queued + stat.running for stat in stats)

    async def empty(self) -> None:
        while await self.left():
            await self.client.drain_queue("bench")
            await asyncio.sleep(0.05)


if __name__ == "__main__":
    main(Awa)
