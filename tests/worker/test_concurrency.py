"""A slot is free when its handler has returned, and whatever a handler raises, it is free then."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import AsyncJob, AsyncQueue, Job, LeasePolicy, Queue, Worker
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage

BLOCK = 30.0


class Unusual(BaseException):
    """An exception that `except Exception` does not catch."""


ERRORS = [KeyboardInterrupt, GeneratorExit, SystemExit, asyncio.CancelledError, Unusual]


def fail_first(error: type[BaseException]) -> Callable[[AsyncJob], Any]:
    async def handle(job: AsyncJob) -> int:
        await asyncio.sleep(0)
        if job.attempts == 1:
            raise error
        return job.attempts

    return handle


@pytest.mark.parametrize("error", ERRORS)
def test_a_coroutine_that_raises_anything_follows_the_retry_policy(
    storage: Storage, error: type[BaseException]
) -> None:
    queue = Queue("q", storage=storage, block_timeout=BLOCK)
    queue.execute(fail_first(error))
    heard = Events(queue, "failing", "completed")
    queue.enqueue_many([("a", None), ("b", None)])
    with queue:
        events = heard.wait(4)
    assert sorted((e.name, e.id) for e in events) == [(n, i) for n in ("completed", "failing") for i in "ab"]
    assert {type(e.error) for e in events if e.name == "failing"} == {error}


@pytest.mark.parametrize("error", ERRORS)
def test_on_the_callers_loop_as_well(storage: Storage, error: type[BaseException]) -> None:
    async def main() -> Any:
        queue = AsyncQueue("q", storage=storage, block_timeout=BLOCK)
        queue.execute(fail_first(error))
        completed: asyncio.Queue[Any] = asyncio.Queue()
        queue.on("completed", completed.put)
        async with queue:
            await queue.enqueue_many([("a", None), ("b", None)])
            events = [await asyncio.wait_for(completed.get(), 60) for _ in range(2)]
        await storage.operations("async").close()
        return sorted((event.id, event.result) for event in events)

    assert asyncio.run(main()) == [("a", 2), ("b", 2)]


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_what_a_serde_raises_fails_the_job_and_keeps_the_slot(
    storage: Storage, style: str, error: type[BaseException]
) -> None:
    class Broken:
        def serialize(self, value: Any) -> bytes:
            if value == "bad":
                raise error
            return b"1"

        def deserialize(self, data: bytes) -> Any:
            return data

    queue = Queue("q", storage=storage, result_serde=Broken(), block_timeout=BLOCK)

    async def answer(job: AsyncJob) -> Any:
        return job.payload

    queue.execute(answer if style == "coroutine" else lambda job: job.payload)
    heard = Events(queue, "failed", "completed")
    queue.enqueue_many([("a", "bad"), ("b", "good")])
    with queue:
        assert {e.id: e.name for e in heard.wait(2)} == {"a": "failed", "b": "completed"}


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_a_handler_that_outlives_its_attempt_keeps_its_slot_and_other_workers_get_the_jobs(
    storage: Storage, style: str
) -> None:
    """Its worker has one slot, and it is taken, so the next job is claimed once: by the worker that can run it."""
    cleaned = threading.Event()

    def hang(job: Job) -> int:
        if job.id == "slow":
            cleaned.wait(60)
        return job.lease

    async def hang_async(job: AsyncJob) -> int:
        try:
            if job.id == "slow":
                await asyncio.sleep(60)
        finally:
            if job.id == "slow":
                await asyncio.to_thread(cleaned.wait, 60)
        return job.lease

    busy, idle = (Queue("q", storage=storage, block_timeout=BLOCK, visibility_timeout=60) for _ in range(2))
    busy.execute(hang if style == "plain" else hang_async)
    idle.execute(lambda job: job.lease)
    failed, done, by_busy = (
        Events(busy, "failed"),
        Events(idle, "completed"),
        Events(busy, "processing"),
    )
    quick = [(f"quick {n}", None) for n in range(40)]
    busy.enqueue_many(quick)
    with busy:
        by_busy.wait(40)
        busy.enqueue("slow", None, expire_in_seconds=1, max_attempts=1)
        failed.wait()
        busy.enqueue("next", None)
        with idle:
            (event,) = done.wait()
        cleaned.set()
    assert (event.id, event.result) == ("next", 1)


def test_a_slot_is_used_again_when_its_handler_returned_at_last(storage: Storage) -> None:
    cleaned = threading.Event()

    async def hang(job: AsyncJob) -> str:
        try:
            if job.id == "slow":
                await asyncio.sleep(60)
        finally:
            if job.id == "slow":
                await asyncio.to_thread(cleaned.wait, 60)
        return job.id

    queue = Queue("q", storage=storage, lease_policy=LeasePolicy(expire=0.5), block_timeout=BLOCK)
    queue.execute(hang)
    failed, done = Events(queue, "failed"), Events(queue, "completed")
    queue.enqueue("slow", None, max_attempts=1)
    with queue:
        failed.wait()
        queue.enqueue("next", None)
        cleaned.set()
        assert done.wait()[0].id == "next"


def test_a_worker_of_both_styles_counts_its_slots_together(storage: Storage) -> None:
    """A function that hangs in one of two slots leaves one for coroutines, and functions."""
    hanging = threading.Event()
    one, two = (Queue(name, storage=storage, block_timeout=BLOCK) for name in ("one", "two"))

    @one.execute
    def hang(job: Job) -> str:
        if job.id == "slow":
            hanging.wait(60)
        return job.id

    @two.execute
    async def answer(job: AsyncJob) -> str:
        await asyncio.sleep(0)
        return job.id

    done = Events(one, "completed"), Events(two, "completed")
    one.enqueue("slow", None)
    one.enqueue_many([(f"a{n}", None) for n in range(20)])
    two.enqueue_many([(f"b{n}", None) for n in range(20)])
    with Worker(one, two, concurrency=2):
        done[0].wait(20)
        done[1].wait(20)
        hanging.set()
        assert done[0].wait(21)[-1].id == "slow"
