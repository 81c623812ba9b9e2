"""procrastinate: PsycopgConnector, batch_defer, a worker with concurrency 50 that listens."""

from __future__ import annotations

import asyncio
from typing import Any

import procrastinate
from protocol import CONCURRENCY, Contender, main


class Procrastinate(Contender):
    package = "procrastinate"
    settings = f"PsycopgConnector, batch_defer in batches of 1,000, concurrency {CONCURRENCY}"

    async def setup(self) -> None:
        self.app = procrastinate.App(connector=procrastinate.PsycopgConnector(conninfo=self.address))
        await self.app.open_async()
        await self.app.schema_manager.apply_schema_async()
        self.tasks: dict[str, Any] = {}

        @self.app.task(name="coroutine", queue="bench")
        async def coroutine(number: int) -> None:
            await self.run(number)

        @self.app.task(name="plain", queue="bench")
        def plain(number: int) -> None:
            self.run_plain(number)

        @self.app.task(name="work", queue="bench")
        async def work(number: int) -> None:
            await self.run_work(number)

        self.tasks = {"coroutine": coroutine, "plain": plain, "work": work}
        self.kind = "coroutine"

    async def enqueue(self, number: int) -> None:
        await self.tasks["coroutine"].defer_async(number=number)

    async def enqueue_many(self, numbers: range) -> None:
        for start in range(0, len(numbers), 1000):
            part = [{"number": number} for number in numbers[start : start + 1000]]
            await self.tasks[self.kind].batch_defer_async(*part)

    async def start(self, kind: str) -> None:
        if kind != "coroutine":  # The name of the task is in the job.
            await self.app.connector.execute_query_async(
                "update procrastinate_jobs set task_name = %(name)s", name=kind
            )
        self.worker = asyncio.create_task(
            self.app.run_worker_async(
                queues=["bench"], concurrency=CONCURRENCY, install_signal_handlers=False, delete_jobs="always"
            )
        )
        await asyncio.sleep(0)

    async def stop(self) -> None:
        self.worker.cancel()
        await asyncio.gather(self.worker, return_exceptions=True)

    async def left(self) -> int:
        row = await self.app.connector.execute_query_one_async("select count(*) as count from procrastinate_jobs")
        return row["count"]

    async def empty(self) -> None:
        await self.app.connector.execute_query_async("truncate procrastinate_jobs cascade")


if __name__ == "__main__":
    main(Procrastinate)
