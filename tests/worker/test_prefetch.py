"""Jobs claimed ahead wait for a second at the longest while other workers idle."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import AsyncJob, Client, Job, Queue
from pgjq.worker.prefetch import HORIZON, MOST, Prefetch
from tests.worker.conftest import Events, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.storage.base import Storage

BLOCK = 30.0
QUICK = 50


class Slow:
    """A handler in three styles: quick, except for one job, which blocks until it is told to go on."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.go_on = threading.Event()

    def plain(self, job: Job) -> int:
        if job.payload == "slow":
            self.started.set()
            self.go_on.wait(100)
        return job.lease

    async def coroutine(self, job: AsyncJob) -> int:
        if job.payload == "slow":
            self.started.set()
            await asyncio.to_thread(self.go_on.wait, 100)
        return job.lease

    async def blocking_coroutine(self, job: AsyncJob) -> int:
        if job.payload == "slow":
            self.started.set()
            self.go_on.wait(100)  # The point: nothing else runs on the loop.
        return job.lease


@pytest.fixture
def slow() -> Iterator[Slow]:
    slow = Slow()
    yield slow
    slow.go_on.set()


def jobs() -> list[tuple[str, Any]]:
    """Quick jobs by which a worker learns to claim ahead, a slow one, and quick jobs that are claimed behind it."""
    before = [(f"before {n}", "quick") for n in range(QUICK)]
    return [*before, ("slow", "slow"), *((f"behind {n}", "quick") for n in range(QUICK))]


def completed(storage: Storage, name: str) -> int:
    """Count them by name: of jobs that ran before, a blocked loop may not have settled the last."""
    return sum(job.id.startswith(name) for job in Client(storage).find_jobs("q", state="completed", limit=1000))


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("style", ["plain", "coroutine", "blocking_coroutine"])
def test_jobs_behind_a_slow_one_are_run_by_another_worker(
    storage: Storage, slow: Slow, style: str, concurrency: int
) -> None:
    busy = Queue("q", storage=storage, block_timeout=BLOCK, concurrency=concurrency)
    idle = Queue("q", storage=storage, block_timeout=BLOCK)
    busy.execute(getattr(slow, style))
    idle.execute(lambda job: job.lease)
    ran = Events(busy, "completed")
    by_idle = Events(idle, "completed")
    busy.enqueue_many(jobs())
    with busy:
        assert slow.started.wait(60)
        with idle:
            until(lambda: completed(storage, "behind") == QUICK)
        slow.go_on.set()
        ran.wait(2 * QUICK + 1 - len(by_idle.events))
    assert {status.attempts for status in Client(storage).find_jobs("q", limit=1000)} == {1}


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_a_worker_alone_does_not_claim_again_what_it_gave_back_until_a_slot_is_free(
    storage: Storage, slow: Slow, style: str
) -> None:
    queue = Queue("q", storage=storage, block_timeout=BLOCK)
    queue.execute(getattr(slow, style))
    heard = Events(queue, "completed")
    queue.enqueue_many(jobs())
    with queue:
        assert slow.started.wait(60)
        until(lambda: Client(storage).get_queue_stats("q").ready == QUICK)
        for _ in range(50):
            assert Client(storage).get_queue_stats("q").processing == 1
            time.sleep(0.005)
        slow.go_on.set()
        events = heard.wait(2 * QUICK + 1)
    assert sorted(event.id for event in events) == sorted(job_id for job_id, _ in jobs())


def test_jobs_that_were_given_back_keep_the_order_of_their_key(slow: Slow, postgres: Storage) -> None:
    Client(postgres).create_queue("q", policy="key_strict_fifo")
    busy, idle = (Queue("q", storage=postgres, block_timeout=BLOCK) for _ in range(2))
    order: dict[str, list[int]] = {}

    def handle(job: Job) -> int:
        key, number = job.payload if isinstance(job.payload, list) else (job.payload, 0)
        order.setdefault(key, []).append(number)
        return slow.plain(job)

    busy.execute(handle)
    idle.execute(handle)
    for n in range(QUICK):
        busy.enqueue(f"before {n}", [f"warm {n}", 0], singleton_key=f"warm {n}")
    busy.enqueue("slow", "slow", singleton_key="slow")
    for n in range(3):
        for key in "abcdefgh":
            busy.enqueue(f"{key}{n}", [key, n], singleton_key=key)
    with busy:
        assert slow.started.wait(60)
        with idle:
            until(lambda: Client(postgres).get_queue_stats("q").completed == QUICK + 24)
        slow.go_on.set()
    assert {key: numbers for key, numbers in order.items() if len(key) == 1} == {key: [0, 1, 2] for key in "abcdefgh"}


def test_a_worker_that_knows_nothing_claims_nothing_ahead() -> None:
    assert Prefetch().prefetch_count(10, saturated=False, now=1.0) == 0


def test_as_much_is_claimed_ahead_as_handlers_finish_in_a_moment() -> None:
    prefetch = Prefetch()
    prefetch.measure(0.01)
    assert prefetch.prefetch_count(1, saturated=False, now=1.0) == 10
    assert prefetch.prefetch_count(5, saturated=False, now=1.0) == 50
    assert prefetch.prefetch_count(10_000, saturated=False, now=1.0) == MOST


def test_while_no_handler_ends_nothing_is_claimed_ahead() -> None:
    prefetch = Prefetch()
    prefetch.measure(0.001)
    assert prefetch.prefetch_count(1, saturated=False, now=1.0) == 100
    assert prefetch.prefetch_count(1, saturated=True, now=2.0) == 0
    for _ in range(1000):
        prefetch.measure(0.001)
    assert prefetch.prefetch_count(1, saturated=True, now=3.0) == 100


def test_slots_that_do_not_flow_do_not_count() -> None:
    """Nine handlers of ten do not end; the tenth ends a hundred times in a tenth of a second."""
    prefetch = Prefetch()
    prefetch.measure(0.001)
    prefetch.prefetch_count(10, saturated=True, now=1.0)
    for _ in range(1000):
        prefetch.measure(0.001)
    assert prefetch.prefetch_count(10, saturated=True, now=2.0) == 200


def test_an_idle_worker_claims_ahead_as_soon_as_there_is_work() -> None:
    prefetch = Prefetch()
    prefetch.measure(0.001)
    prefetch.prefetch_count(1, saturated=True, now=1.0)
    assert prefetch.prefetch_count(1, saturated=False, now=60.0) == 100
    assert prefetch.prefetch_count(1, saturated=True, now=60.0 + HORIZON / 2) == 100
