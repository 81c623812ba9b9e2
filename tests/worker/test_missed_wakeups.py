"""A wake-up that is missed costs seconds: every wait in a worker and in a waiter ends by itself, and looks."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import AsyncClient, AsyncQueue, Client, PostgresStorage, Queue
from tests.worker.conftest import until

if TYPE_CHECKING:
    from pgjq.storage.base import Storage

LIMIT = 60.0
FOR_EVER = 600.0


class Deaf(asyncio.Event):
    """An event whose wake-ups are lost."""

    def set(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_waiter_finds_an_answer_that_it_was_not_told_of(
    database: str, postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """The mark that a caller waits is removed from the job, so that its end is announced to no one."""
    monkeypatch.setattr("pgjq.storage.result_waiter.LOOK_SECONDS", 0.2)

    async def ask() -> Any:
        async with AsyncClient(postgres) as client:
            return await client.enqueue_and_wait("q", "a", 1, timeout=FOR_EVER)

    queue = Queue("q", storage=postgres, block_timeout=30)
    queue.execute(lambda job: job.payload)
    client = Client(postgres)
    with ThreadPoolExecutor(1) as pool:
        if mode == "sync":
            asking = pool.submit(client.enqueue_and_wait, "q", "a", 1, timeout=FOR_EVER)
        else:
            asking = pool.submit(asyncio.run, ask())
        until(lambda: client.get_status("q", "a"))
        with psycopg.connect(database, autocommit=True) as operator:
            operator.execute("update pgjq.job set awaited = false")
        with queue:
            assert asking.result(LIMIT) == 1


@pytest.mark.parametrize("deaf", ["claimer", "settler"])
def test_a_worker_goes_on_although_it_was_not_woken(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, deaf: str
) -> None:
    for module in ("claimer", "settler"):
        monkeypatch.setattr(f"pgjq.worker.{module}.LOOK_SECONDS", 0.05)

    async def serve() -> list[Any]:
        queue = AsyncQueue("q", storage=storage, concurrency=1, block_timeout=30)
        queue.execute(echo)
        async with queue:
            engine: Any = queue._service._engine  # type: ignore[union-attr]
            if deaf == "claimer":
                engine._room = Deaf()
            else:
                engine._settler._work = Deaf()
            async with asyncio.timeout(LIMIT):
                answers = [await queue.enqueue_and_wait(str(n), n, timeout=FOR_EVER) for n in range(5)]
        await storage.operations("async").close()
        return answers

    assert asyncio.run(serve()) == list(range(5))


async def echo(job: Any) -> Any:
    return job.payload
