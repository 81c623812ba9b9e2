"""Drain and run: the worker's own run, retry decision and settlement, in the test's thread."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.testing import drain, run

if TYPE_CHECKING:
    from tests.kit.conftest import Kit

HOUR = timedelta(hours=1)


def test_drain_runs_what_is_due_and_what_that_enqueues_in_this_thread(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    threads: list[Any] = []

    @queue.task
    def count_down(n: int) -> int:
        threads.append(threading.current_thread())
        if n:
            count_down.enqueue(n - 1)
        return n

    handle = count_down.enqueue(3)
    later = count_down.using(delay=60).enqueue(0)
    assert drain(queue) == 4
    assert set(threads) == {threading.current_thread()}
    assert handle.result() == 3
    status = later.status()
    assert status is not None
    assert status.state == "queued"
    with pytest.raises(pgjq.PgjqError, match="no job is being processed"):
        pgjq.current_job()


def test_a_coroutine_on_a_queue_runs_in_this_thread(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)

    @queue.task
    async def where() -> bool:
        await asyncio.sleep(0)
        return threading.current_thread() is threading.main_thread()

    assert run(where) is True


def test_until_moves_the_clock_to_delayed_jobs_and_retries(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    began, at = kit.clock.now(), list[Any]()

    @queue.task(retry_delay=60, retry_backoff=False, max_attempts=3)
    def unlucky() -> None:
        at.append(kit.clock.now() - began)
        raise OSError("no line")

    handle = unlucky.using(delay=600).enqueue()
    assert drain(queue) == 0
    assert drain(queue, until=began + HOUR) == 3
    assert at == [timedelta(minutes=minutes) for minutes in (10, 11, 12)]
    status = handle.status()
    assert status is not None
    assert (status.state, status.attempts) == ("failed", 3)
    assert kit.clock.now() == began + HOUR
    assert drain(queue, until=HOUR) == 0
    assert kit.clock.now() == began + 2 * HOUR


def test_until_runs_schedules() -> None:
    clock = pgjq.testing.ManualClock()
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage(clock=clock))
    days: list[Any] = []

    @queue.schedule("0 3 * * *")
    def nightly() -> None:
        days.append(clock.now().day)

    assert drain(queue, until=timedelta(days=3)) == 3
    assert days == [1, 2, 3]


def test_until_without_a_movable_clock_waits_for_what_is_due_soon() -> None:
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())
    queue.execute(lambda job: job.payload)
    queue.enqueue("a", 1, delay=0.05)
    assert drain(queue) == 0
    assert drain(queue, until=timedelta(seconds=30)) == 1
    with pytest.raises(pgjq.ValidationError, match="pgjq_clock"):
        drain(queue, until=timedelta(hours=1))


def test_a_stalled_job_is_taken_back(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    queue.execute(lambda job: job.attempts)
    queue.enqueue("a", 1)
    with pgjq.testing.crash_after("claim"):
        assert drain(queue) == 0
    assert drain(queue) == 0
    assert drain(queue, until=HOUR) == 1
    assert queue.get_result("a") == 2


def test_run_returns_the_result_in_the_tasks_type_or_raises(kit: Kit) -> None:
    queue = pgjq.Queue("mail", storage=kit.storage)
    queue.execute(lambda job: job.payload["n"] + 1)

    @queue.task(max_attempts=2, id="triple-{days}")
    def triple(days: timedelta) -> timedelta:
        assert isinstance(days, timedelta)
        if not days:
            raise LookupError("no days")
        return 3 * days

    @queue.task
    def unserialisable() -> object:
        return object()

    triple.enqueue(timedelta(days=9))
    assert run(triple, timedelta(days=2)) == timedelta(days=6)
    with pytest.raises(LookupError, match="no days"):
        run(triple, timedelta())
    status = queue.get_status("triple-0:00:00")
    assert status is not None
    assert (status.state, status.attempts) == ("failing", 1)
    with pytest.raises(pgjq.PgjqError, match="failing already"):
        run(triple, timedelta())
    with pytest.raises(pgjq.ValidationError):
        run(unserialisable)
    with pytest.raises(pgjq.ValidationError, match="days"):
        run(triple, "soon")  # type: ignore[arg-type]
    assert run(queue, {"n": 1}) == 2
    for wrong in ((), (1, 2)):
        with pytest.raises(pgjq.ValidationError, match="one payload"):
            run(queue, *wrong)  # type: ignore[call-overload]
    status = queue.get_status("triple-9 days, 0:00:00")
    assert status is not None
    assert (status.state, status.attempts) == ("queued", 0)


def test_async_queues(kit: Kit) -> None:
    queue = pgjq.AsyncQueue("mail", storage=kit.storage)

    @queue.task
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @queue.task
    def plain(n: int) -> int:
        return asyncio.run(asyncio.sleep(0, n))  # There is no running loop in its thread, as in a worker.

    async def story() -> None:
        handle = await double.enqueue(4)
        await plain.using(delay=60).enqueue(1)
        assert await drain(queue) == 1
        assert await handle.result() == 8
        assert await drain(queue, until=HOUR) == 1
        assert await run(double, 5) == 10
        assert await run(plain, 5) == 5
        await queue.storage.operations("async").close()

    asyncio.run(story())


def test_middleware_dependencies_and_events_take_part() -> None:
    seen: list[str] = []

    class Around:
        async def run(self, job: Any, call_next: Any) -> Any:
            seen.append("before")
            return await call_next(job)

    async def provide() -> str:
        return "dependency"

    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage(), middleware=[Around()])

    @queue.task
    def greet(name: str = pgjq.Depends(provide)) -> str:
        return name

    async def completed(event: pgjq.Event) -> None:
        await asyncio.sleep(0)
        seen.append(event.name)

    queue.on("processing", lambda event: seen.append(event.name))
    queue.on("completed", completed)
    assert run(greet) == "dependency"
    assert seen == ["processing", "before", "completed"]


def test_a_queue_without_a_handler_cannot_be_drained() -> None:
    with pytest.raises(pgjq.ValidationError, match="has no handler"):
        drain(pgjq.Queue("mail", storage=pgjq.MemoryStorage()))


def test_ctrl_c_in_a_handler_ends_the_test() -> None:
    queue = pgjq.Queue("mail", storage=pgjq.MemoryStorage())

    @queue.execute
    def interrupted(_: pgjq.Job[Any]) -> None:
        raise KeyboardInterrupt

    queue.enqueue("a", 1)
    with pytest.raises(KeyboardInterrupt):
        drain(queue)
