"""Crashes between the steps of a run, and leases that are lost while a handler runs."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.testing import crash_after, drain, lose_lease, run

if TYPE_CHECKING:
    from tests.kit.conftest import Kit


@pytest.mark.parametrize(
    ("step", "ran", "state", "runs"),
    [("claim", 0, "processing", [2]), ("handler", 1, "processing", [1, 2]), ("commit", 1, "completed", [1])],
)
def test_a_crash_leaves_what_a_killed_worker_leaves(kit: Kit, step: Any, ran: int, state: str, runs: list[int]) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    attempts: list[int] = []
    queue.on("completed", lambda _: None)

    @queue.execute
    def handle(job: pgjq.Job[Any]) -> None:
        attempts.append(job.attempts)

    queue.enqueue("a", 1)
    with crash_after(step):
        assert drain(queue) == ran
    status = queue.get_status("a")
    assert status is not None
    assert status.state == state
    kit.clock.advance(minutes=1)
    drain(queue)
    assert attempts == runs


def test_the_lease_of_a_crashed_worker_can_be_lost_at_once(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)

    @queue.task
    def count() -> int:
        return pgjq.current_job().attempts

    with crash_after("claim") as crash:
        run(count)
        pytest.fail("run() raises at the crash")
    lose_lease(crash.job)
    assert drain(queue) == 1
    assert queue.get_result(crash.job.id) == 2


def test_a_block_without_a_crash_fails() -> None:
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    queue.execute(lambda job: job.payload)
    with pytest.raises(AssertionError, match="nothing crashed"), crash_after("commit"):
        drain(queue)
    with pytest.raises(pgjq.ValidationError), crash_after("lunch"):  # type: ignore[arg-type]
        drain(queue)


def test_what_a_zombie_does_is_refused(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    refused: list[type[BaseException]] = []

    @queue.execute
    def handle(job: pgjq.Job[Any]) -> int:
        if job.attempts == 1:
            lose_lease(job)
            for act in (job.heartbeat, lambda: job.save_checkpoint(1)):
                with pytest.raises(pgjq.LeaseLostError) as error:
                    act()
                refused.append(error.type)
        return job.attempts

    queue.enqueue("a", 1)
    assert drain(queue) == 2
    assert refused == [pgjq.LeaseLostError] * 2
    assert queue.get_result("a") == 2


def test_a_real_worker_can_lose_its_lease(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    jobs: list[pgjq.Job[Any]] = []
    started, lost, again = threading.Event(), threading.Event(), threading.Event()

    @queue.execute
    def handle(job: pgjq.Job[Any]) -> int:
        jobs.append(job)
        if job.attempts > 1:
            again.set()
        else:
            started.set()
            lost.wait(60)
        return job.attempts

    queue.enqueue("a", 1)
    with queue:
        assert started.wait(60)
        lose_lease(jobs[0])
        lost.set()
        assert again.wait(60)
    assert queue.get_result("a") == 2
    with pytest.raises(AssertionError, match="no lease to lose"):
        lose_lease(jobs[0])


def test_an_async_job_loses_its_lease() -> None:
    queue = pgjq.AsyncQueue("mail", storage=pgjq.MemoryStorage())

    @queue.execute
    async def handle(job: pgjq.AsyncJob[Any]) -> int:
        if job.attempts == 1:
            await lose_lease(job)
        return job.attempts

    async def story() -> None:
        await queue.enqueue("a", 1)
        assert await drain(queue) == 2
        assert await queue.get_result("a") == 2
        await queue.enqueue("b", 1)
        with crash_after("handler") as crash:
            await drain(queue)
        with pytest.raises(AssertionError, match="no lease to lose"):
            await lose_lease(crash.job)

    asyncio.run(story())
