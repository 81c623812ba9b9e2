"""Queues run handlers: each style, each outcome, each way to stop."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq import AsyncJob, AsyncQueue, Client, Job, LeasePolicy, MemoryStorage, Queue, ValidationError, Worker
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage

ENDED = ("completed", "failed", "cancelled")


def run(storage: Storage, handler: Callable[..., Any], payload: Any = None, **options: Any) -> Any:
    """Run one job to its end and return its status."""
    queue = Queue("q", storage=storage)
    queue.execute(handler)
    heard = Events(queue, *ENDED)
    queue.enqueue("job", payload, **options)
    with queue:
        heard.wait()
    return queue.get_status("job")


def plain(job: Job) -> Any:
    return {"got": job.payload}


async def coroutine(job: AsyncJob) -> Any:
    await asyncio.sleep(0)
    return {"got": job.payload}


def callback(job: Job, done: Callable[..., None]) -> None:
    threading.Thread(target=lambda: done(None, {"got": job.payload})).start()


@pytest.mark.parametrize("handler", [plain, coroutine, callback])
def test_each_style_of_handler_completes_its_job(storage: Storage, handler: Callable[..., Any]) -> None:
    status = run(storage, handler, [1, 2])
    assert (status.state, status.result, status.attempts) == ("completed", {"got": [1, 2]}, 1)


def test_an_object_with_an_async_call_is_a_coroutine_handler(storage: Storage) -> None:
    class Handler:
        async def __call__(self, job: AsyncJob) -> str:
            await asyncio.sleep(0)
            return job.id

    assert run(storage, Handler()).result == "job"


def test_a_job_says_what_it_is(storage: Storage) -> None:
    def look(job: Job) -> Any:
        assert job.created_at.utcoffset() is not None
        return [job.id, job.queue, job.attempts, job.max_attempts, job.lease, job.signal.aborted, job.checkpoint]

    assert run(storage, look, max_attempts=5).result == ["job", "q", 1, 5, 1, False, None]


def test_an_exception_is_retried_until_the_attempts_run_out(storage: Storage) -> None:
    runs: list[int] = []

    def fail(job: Job) -> None:
        runs.append(job.attempts)
        raise KeyError("boom")

    status = run(storage, fail, max_attempts=3)
    assert runs == [1, 2, 3]
    assert (status.state, status.error.type, status.error.message) == ("failed", "KeyError", "'boom'")
    assert "in fail" in status.error.traceback


@pytest.mark.parametrize("mode", ["plain", "coroutine"])
@pytest.mark.parametrize(
    ("order", "attempts", "state"),
    [
        (lambda: pgjq.Retry(delay=0), 2, "completed"),
        (lambda: pgjq.Snooze(delay=0), 1, "completed"),
        (lambda: pgjq.Discard("no use"), 1, "failed"),
    ],
)
def test_a_handler_gives_orders(
    storage: Storage, mode: str, order: Callable[[], Exception], attempts: int, state: str
) -> None:
    given: list[int] = []

    def obey(job: Job) -> str:
        given.append(job.attempts)
        if len(given) == 1:
            raise order()
        return "done"

    async def obey_async(job: AsyncJob) -> str:
        return obey(job)  # type: ignore[arg-type]

    status = run(storage, obey if mode == "plain" else obey_async)
    assert (status.state, status.attempts) == (state, attempts)


def test_a_callback_handler_reports_its_error(storage: Storage) -> None:
    def report(_job: Job, done: Callable[..., None]) -> None:
        done(ValueError("no"))

    assert run(storage, report, max_attempts=1).error.message == "no"


def test_a_result_that_cannot_be_serialised_fails_the_job_by_name(storage: Storage) -> None:
    status = run(storage, lambda job: {job.id})
    assert status.state == "failed"
    assert "the result of job 'job' cannot be serialised" in status.error.message


def test_a_payload_that_cannot_be_read_fails_that_job_alone(storage: Storage) -> None:
    class Picky(pgjq.JsonSerde):
        def deserialize(self, data: bytes) -> Any:
            if data == b'"bad"':
                raise ValueError("unreadable")
            return super().deserialize(data)

    queue = Queue("q", storage=storage, payload_serde=Picky())
    queue.execute(plain)
    heard = Events(queue, "completed", "failed")
    queue.enqueue_many([("a", "good"), ("b", "bad"), ("c", "good")])
    with queue:
        heard.wait(3)
    states = {i: queue.get_status(i) for i in "abc"}
    assert {i: s.state for i, s in states.items() if s} == {"a": "completed", "b": "failed", "c": "completed"}


def test_context_variables_reach_the_handler_and_stay_with_it(storage: Storage) -> None:
    tenant: contextvars.ContextVar[str] = contextvars.ContextVar("tenant", default="nobody")

    def see(_job: Job) -> str:
        seen = tenant.get()
        tenant.set("changed by a job")
        return seen

    tenant.set("ann")
    queue = Queue("q", storage=storage)
    queue.execute(see)
    heard = Events(queue, "completed")
    queue.enqueue_many([("a", None), ("b", None)])
    with queue:
        assert [event.result for event in heard.wait(2)] == ["ann", "ann"]


def test_no_more_handlers_run_at_once_than_asked_for(storage: Storage) -> None:
    running: list[int] = []
    most: list[int] = []
    lock = threading.Lock()
    full = threading.Barrier(3)

    def meet(job: Job) -> None:
        with lock:
            running.append(job.payload)
            most.append(len(running))
        full.wait(60)
        with lock:
            running.remove(job.payload)

    queue = Queue("q", storage=storage, concurrency=3)
    queue.execute(meet)
    heard = Events(queue, "completed")
    queue.enqueue_many([(None, n) for n in range(9)])
    with queue:
        heard.wait(9)
    assert max(most) == 3


def test_a_worker_serves_several_queues_and_styles(storage: Storage) -> None:
    one, two = Queue("one", storage=storage), Queue("two", storage=storage)
    one.execute(plain)
    two.execute(coroutine)
    heard = Events(one, "completed"), Events(two, "completed")
    one.enqueue_many([(f"a{n}", n) for n in range(20)])
    two.enqueue_many([(f"b{n}", n) for n in range(20)])
    with Worker(one, two, concurrency=3):
        assert {e.queue for e in heard[0].wait(20)} == {"one"}
        assert {e.queue for e in heard[1].wait(20)} == {"two"}


def test_a_checkpoint_is_there_on_the_next_run(storage: Storage) -> None:
    def climb(job: Job) -> Any:
        if job.checkpoint is None:
            job.save_checkpoint({"step": 1})
            raise RuntimeError("fell")
        return job.checkpoint

    assert run(storage, climb).result == {"step": 1}


def test_a_coroutine_can_beat_and_checkpoint(storage: Storage) -> None:
    async def climb(job: AsyncJob) -> Any:
        await job.heartbeat()
        if job.checkpoint is None:
            await job.save_checkpoint([1])
            raise RuntimeError("fell")
        return job.checkpoint

    assert run(storage, climb).result == [1]


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_an_attempt_that_takes_too_long_is_over_even_while_its_handler_hangs(storage: Storage, style: str) -> None:
    hanging = threading.Event()
    attempts: list[int] = []

    def hang(job: Job) -> str:
        attempts.append(job.attempts)
        if job.attempts == 1:
            job.signal.wait(60)
            assert job.signal.reason == "expired"
            hanging.wait(60)
        return "second"

    async def hang_async(job: AsyncJob) -> str:
        attempts.append(job.attempts)
        if job.attempts == 1:
            await asyncio.sleep(60)
        return "second"

    queue = Queue("q", storage=storage, concurrency=2, lease_policy=LeasePolicy(lease=2, heartbeat=0.2, expire=0.4))
    queue.execute(hang if style == "plain" else hang_async)
    heard = Events(queue, "failing", "completed")
    queue.enqueue("job", None)
    with queue:
        failing, completed = heard.wait(2)
        assert (failing.name, type(failing.error)) == ("failing", pgjq.TimeoutError)
        assert (completed.name, completed.result) == ("completed", "second")
        hanging.set()
    assert attempts == [1, 2]


def test_a_running_job_asked_to_end_is_cancelled_at_the_next_heartbeat(storage: Storage) -> None:
    started, told = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        started.set()
        job.signal.wait(60)
        told.set()

    queue = Queue("q", storage=storage, lease_policy=LeasePolicy(lease=2, heartbeat=0.1))
    queue.execute(work)
    heard = Events(queue, "cancelled")
    queue.enqueue("job", None)
    with queue:
        assert started.wait(60)
        assert queue.cancel("job", active=True).status == "processing"
        heard.wait()
        assert told.wait(60)
    assert queue.get_status("job").state == "cancelled"  # type: ignore[union-attr]


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_stopping_without_grace_gives_the_job_back_with_its_attempt(storage: Storage, style: str) -> None:
    started, ended = threading.Event(), threading.Event()

    def work(job: Job) -> str:
        started.set()
        job.signal.wait(60)
        ended.set()
        return f"too late, {job.signal.reason}"

    async def work_async(_job: AsyncJob) -> None:
        started.set()
        await asyncio.sleep(60)

    queue = Queue("q", storage=storage)
    queue.execute(work if style == "plain" else work_async)
    queue.enqueue("job", None)
    queue.start()
    assert started.wait(60)
    queue.stop(grace=0)
    status = queue.get_status("job")
    assert status is not None
    assert (status.state, status.attempts, status.worker) == ("queued", 0, None)
    assert style == "coroutine" or ended.wait(60)


def test_stopping_lets_running_jobs_finish_and_gives_back_those_not_started(storage: Storage) -> None:
    started, finish = threading.Event(), threading.Event()

    def work(_job: Job) -> None:
        started.set()
        finish.wait(60)

    queue = Queue("q", storage=storage)
    queue.execute(work)
    queue.enqueue_many([("first", None), ("second", None)])
    queue.start()
    assert started.wait(60)
    threading.Timer(0.05, finish.set).start()
    queue.stop(grace=60)
    client = Client(storage)
    assert {s.id: (s.state, s.attempts) for s in client.find_jobs("q")} == {
        "first": ("completed", 1),
        "second": ("queued", 0),
    }


def test_an_idle_worker_looks_every_block_timeout_although_nobody_wakes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    storage = MemoryStorage()
    operations: Any = storage.operations("async")
    wait, asked = operations.wait_for_work, threading.Event()
    sleeps: list[tuple[list[str], float]] = []

    async def note(queues: list[str], timeout: float, poll: float) -> bool:
        sleeps.append((queues, poll))
        asked.set()
        return await wait(queues, timeout, poll)

    monkeypatch.setattr(operations, "wait_for_work", note)
    queue = Queue("q", storage=storage, block_timeout=7.5)
    queue.execute(plain)
    with queue:
        assert asked.wait(60)
    assert sleeps[0] == (["q"], 7.5)


def test_a_queue_without_a_handler_is_a_producer(storage: Storage) -> None:
    with Queue("q", storage=storage) as queue:
        job_id = queue.send({"a": 1})
        assert queue.get_status(job_id).state == "queued"  # type: ignore[union-attr]


def test_events_tell_a_jobs_life_in_this_process(storage: Storage) -> None:
    queue = Queue("q", storage=storage)

    @queue.execute
    def once(job: Job) -> str:
        if job.attempts == 1:
            raise ValueError("first")
        return "second"

    heard = Events(queue, "queued", "processing", "failing", "completed")
    queue.enqueue("job", None)
    with queue:
        events = heard.wait(5)
    assert [e.name for e in events] == ["queued", "processing", "failing", "processing", "completed"]
    assert repr(events[2].error) == "ValueError('first')"
    assert events[4].result == "second"


def test_a_failed_event_carries_the_payload_when_attempts_ran_out(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    queue.execute(lambda job: 1 / job.payload["zero"])
    heard = Events(queue, "failed")
    queue.enqueue("job", {"zero": 0}, max_attempts=2)
    with queue:
        (event,) = heard.wait()
    assert isinstance(event.error, pgjq.MaxRetriesError)
    assert (event.error.payload, event.error.attempts) == ({"zero": 0}, 2)
    assert type(event.error.original_error) is ZeroDivisionError
    assert event.error.__cause__ is event.error.original_error


def test_a_callback_that_fails_is_an_error_event_and_no_dead_worker(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    queue.execute(plain)
    errors, completed = Events(queue, "error"), Events(queue, "completed")

    def break_down(_event: Any) -> None:
        raise RuntimeError("a broken callback")

    queue.on("processing", break_down)
    queue.enqueue_many([("a", 1), ("b", 2)])
    with queue:
        completed.wait(2)
        assert str(errors.wait(2)[0]) == "a broken callback"


def test_an_async_queue_runs_on_its_callers_loop(storage: Storage) -> None:
    async def main() -> Any:
        queue = AsyncQueue("q", storage=storage)
        done = asyncio.Event()
        loop = asyncio.get_running_loop()

        @queue.execute
        async def work(job: AsyncJob) -> bool:
            await asyncio.sleep(0)
            return asyncio.get_running_loop() is loop and job.payload == 7

        async def hear(_event: Any) -> None:
            await asyncio.sleep(0)
            done.set()

        queue.on("completed", hear)
        async with queue:
            await queue.enqueue("job", 7)
            await asyncio.wait_for(done.wait(), 60)
        result = await queue.get_result("job")
        await storage.operations("async").close()
        return result

    assert asyncio.run(main()) is True


def test_a_handler_that_blocks_the_loop_does_not_lose_its_job(storage: Storage) -> None:
    async def block(job: AsyncJob) -> int:
        time.sleep(1.5)  # noqa: ASYNC251  (the point: three leases long, nothing else runs on the loop)
        return job.attempts

    queue = Queue("q", storage=storage, lease_policy=LeasePolicy(lease=0.5, heartbeat=0.1, reap_interval=0.1))
    queue.execute(block)
    heard = Events(queue, "completed", "stalled")
    queue.enqueue("job", None)
    with queue:
        assert [(e.name, e.result) for e in heard.wait()] == [("completed", 1)]


@pytest.mark.parametrize("handler", [7, lambda: None, lambda a, b, c: None])  # noqa: ARG005
def test_what_cannot_be_a_handler_is_refused(storage: Storage, handler: Any) -> None:
    with pytest.raises(ValidationError, match="a handler is a function"):
        Queue("q", storage=storage).execute(handler)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 0}, "concurrency"),
        ({"block_timeout": 0}, "block_timeout"),
        ({"result_ttl": float("nan")}, "result_ttl"),
        ({"grace": -1}, "grace"),
        ({"max_attempts": 0}, "max_attempts"),
        ({"visibility_timeout": 0}, "visibility_timeout"),
    ],
)
def test_numbers_that_cannot_work_are_refused(storage: Storage, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Queue("q", storage=storage, **options)


def test_a_queue_cannot_be_started_twice(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    queue.execute(plain)
    with queue, pytest.raises(pgjq.PgjqError, match="started already"):
        queue.start()


def test_a_queue_can_be_started_again_after_a_stop(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    queue.execute(plain)
    heard = Events(queue, "completed")
    for n in (1, 2):
        queue.enqueue(str(n), n)
        with queue:
            heard.wait(n)
    assert queue.get_result("2") == {"got": 2}


def test_an_attempt_whose_lease_ran_out_counts(storage: Storage) -> None:
    """Without heartbeats a slow coroutine loses its lease each time; it must not go on for ever."""

    async def slow(_job: AsyncJob) -> None:
        await asyncio.sleep(60)

    policy = LeasePolicy(lease=0.3, heartbeat=None, reap_interval=0.1)
    queue = Queue("q", storage=storage, lease_policy=policy)
    queue.execute(slow)
    queue.enqueue("job", None, max_attempts=2)
    with queue:
        while queue.get_status("job").state != "failed":  # type: ignore[union-attr]
            pass
    assert queue.get_status("job").attempts == 2  # type: ignore[union-attr]


def test_a_stop_that_is_refused_can_be_made_again(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    queue.execute(plain)
    queue.start()
    with pytest.raises(ValidationError, match="grace"):
        queue.stop(grace=-1)
    queue.stop(grace=0)
    assert "pgjq worker" not in {thread.name for thread in threading.enumerate()}


def test_stopping_waits_for_an_outcome_that_is_on_its_way(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue("q", storage=storage)
    queue.execute(lambda job: job.id)
    operations = storage.operations("async")
    settle, arrived, go = operations.settle, threading.Event(), threading.Event()

    async def slow_settle(settlements: Any) -> Any:
        arrived.set()
        await asyncio.to_thread(go.wait, 60)
        return await settle(settlements)

    monkeypatch.setattr(operations, "settle", slow_settle)
    queue.enqueue("job", None)
    queue.start()
    assert arrived.wait(60)
    stopping = threading.Thread(target=queue.stop, args=(0,))
    stopping.start()
    stopping.join(0.3)
    go.set()
    stopping.join()
    status = queue.get_status("job")
    assert status is not None
    assert (status.state, status.result, status.attempts) == ("completed", "job", 1)
