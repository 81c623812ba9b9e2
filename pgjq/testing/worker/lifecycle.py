"""Worker suite: start, stop, and what is left behind."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.errors import PgjqError, ValidationError
from pgjq.job import NewJob
from pgjq.queue import AsyncQueue, Queue
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo
from pgjq.testing.worker.process_resources import Resources, pgjq_runners
from pgjq.testing.worker.recorder import until_aborted

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Harness, Style


class Hanging:
    """Handlers that run until they are released, unless their payload says otherwise."""

    def __init__(self) -> None:
        self.started = threading.Event()
        self.let_go = threading.Event()
        self.ended = threading.Event()

    def handle(self, job: Any) -> Any:
        if job.payload == "hang":
            self.started.set()
            self.let_go.wait(LIMIT)
            self.ended.set()
        return job.payload

    async def handle_async(self, job: Any) -> Any:
        if job.payload == "hang":
            self.started.set()
            await asyncio.sleep(LIMIT)
        return job.payload


class Lifecycle(WorkerCases):
    """Start and stop."""

    @case
    async def test_a_queue_starts_and_stops_ten_times(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        for n in range(10):
            async with harness.started(queue):
                assert await harness.call(queue.enqueue_and_wait, f"{n}", n) == n
        await harness.stop(queue)

    @case
    async def test_what_cannot_be_started_or_registered_is_refused(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        worker = harness.worker(harness.queue(echo, name="other"))
        await harness.stop(queue)
        async with harness.started(queue), harness.started(worker):
            with pytest.raises(PgjqError, match="started already"):
                await harness.call(queue.start)
            with pytest.raises(PgjqError, match="started already"):
                worker.start()
            with pytest.raises(ValidationError, match="handler"):
                queue.execute(echo)
            assert await harness.call(queue.enqueue_and_wait, "a", 1) == 1

    @case
    async def test_a_queue_without_a_handler_is_a_producer(self, harness: Harness) -> None:
        producer, queue = harness.queue(), harness.queue(echo)
        async with harness.started(producer):
            with pytest.raises(ValidationError, match="started"):
                producer.execute(echo)
            async with harness.started(queue):
                assert await harness.call(producer.enqueue_and_wait, "a", 1) == 1

    @case
    async def test_a_block_starts_and_stops_a_queue(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        if harness.mode == "sync":
            with queue as entered:
                assert entered.enqueue_and_wait("a", 1) == 1
        else:
            async with queue as entered:
                assert await entered.enqueue_and_wait("a", 1) == 1
        await harness.call(queue.enqueue, "b", 1)
        assert (await harness.call(queue.get_status, "b")).state == "queued"

    @case
    async def test_stopping_lets_a_running_job_finish(self, harness: Harness, style: Style) -> None:
        hanging = Hanging()

        def handler(job: Any) -> Any:
            hanging.started.set()
            time.sleep(0.1)
            return job.payload

        queue = harness.queue(handler, style=style)
        await harness.start(queue)
        await harness.call(queue.enqueue, "a", 1)
        await harness.until(hanging.started.is_set, "the handler starts")
        await harness.stop(queue)
        status = await harness.call(queue.get_status, "a")
        assert (status.state, status.result, status.attempts) == ("completed", 1, 1)

    @case
    @pytest.mark.parametrize("style", ["function", "coroutine"])
    async def test_stopping_at_once_gives_back_what_runs_and_what_waits(self, harness: Harness, style: Style) -> None:
        hanging, died = Hanging(), list[Any]()
        handler: Any = hanging.handle_async if style == "coroutine" else hanging.handle
        queue, other = harness.queue(handler), harness.queue(lambda job: job.attempts)
        # Quick jobs first, so that the worker claims ahead.
        quick = [NewJob(f"quick-{n}", n) for n in range(30)]
        after = [NewJob(f"after-{n}", n) for n in range(20)]
        await harness.call(queue.enqueue_many, [*quick, NewJob("hang", "hang"), *after])
        hook, threading.excepthook = threading.excepthook, died.append
        try:
            await harness.start(queue)
            await harness.until(hanging.started.is_set, "the handler starts")
            await harness.stop(queue, grace=0)
            waiting = [await harness.call(queue.get_status, job.id) for job in (NewJob("hang", None), *after)]
            assert [(s.id, s.state, s.attempts) for s in waiting] == [(s.id, "queued", 0) for s in waiting]
            async with harness.started(other):
                assert (await harness.until_state(queue, "hang", "completed")).result == 1
                for job in after:
                    assert (await harness.until_state(queue, str(job.id), "completed")).result == 1
            hanging.let_go.set()
            await harness.until(lambda: not pgjq_runners(), "the thread of the late handler ends")
        finally:
            hanging.let_go.set()
            threading.excepthook = hook
        assert [args.exc_value for args in died] == []
        assert (await harness.call(queue.get_status, "hang")).result == 1

    @case
    async def test_a_handler_that_returns_when_told_to_stop_has_not_completed_its_job(self, harness: Harness) -> None:
        """Threads switch as often as Python lets them, so that a handler returns once aborted."""
        client, ids = harness.client(), [f"{n}" for n in range(20)]
        queue = harness.queue(until_aborted, concurrency=len(ids))
        await harness.call(queue.enqueue_many, [(n, None) for n in ids])
        interval = sys.getswitchinterval()
        await harness.start(queue)
        for n in ids:
            await harness.until_state(queue, n, "processing")
        sys.setswitchinterval(1e-7)
        try:
            await harness.stop(queue, grace=0)
        finally:
            sys.setswitchinterval(interval)
        states = await harness.call(client.get_statuses, QUEUE, ids)
        assert Counter(status.state for status in states.values()) == {"queued": len(ids)}

    @case
    async def test_a_backlog_is_left_to_the_next_worker_and_each_job_runs_once(self, harness: Harness) -> None:
        runs: Counter[str] = Counter()

        def handler(job: Any) -> int:
            runs[job.id] += 1
            return job.attempts

        first, second = harness.queue(handler), harness.queue(handler)
        ids = [f"{n}" for n in range(100)]
        await harness.call(first.enqueue_many, [(n, None) for n in ids])
        await harness.start(first)
        await harness.until(lambda: runs, "the first job runs")
        await harness.stop(first)
        states = Counter(s.state for s in (await harness.call(harness.client().get_statuses, QUEUE, ids)).values())
        assert states["queued"] + states["completed"] == 100, states
        async with harness.started(second):
            for n in ids:
                assert (await harness.until_state(first, n, "completed")).result == 1
        assert runs == Counter(dict.fromkeys(ids, 1))

    @case
    async def test_two_workers_share_a_queue(self, harness: Harness) -> None:
        meeting = threading.Barrier(2)

        def handler(job: Any) -> Any:
            meeting.wait(LIMIT)
            return job.payload

        async with harness.started(harness.queue(handler)) as one, harness.started(harness.queue(handler)):
            for n in range(2):
                await harness.call(one.enqueue, f"{n}", n)
            for n in range(2):
                assert (await harness.until_state(one, f"{n}", "completed", "failed")).result == n

    @case
    async def test_a_worker_serves_queues_of_both_modes_and_every_style(self, harness: Harness) -> None:
        async def coroutine(job: Any) -> Any:
            await asyncio.sleep(0)
            return ["coroutine", job.payload]

        def callback(job: Any, done: Callable[..., None]) -> None:
            threading.Thread(target=done, args=(None, ["callback", job.payload])).start()

        queues = [harness.queue(name=f"queue {n}") for n in range(2)]
        queues.append((AsyncQueue if harness.mode == "sync" else Queue)("queue 2", storage=harness.storage))
        for queue, handler in zip(queues, (echo, coroutine, callback), strict=True):
            queue.execute(handler)
        client, worker = harness.client(), harness.worker(*queues, concurrency=2)
        for again in ("first", "second"):
            async with harness.started(worker):
                results = [await harness.call(client.enqueue_and_wait, queue.name, again, 1) for queue in queues]
            assert results == [1, ["coroutine", 1], ["callback", 1]]

    @case
    async def test_stopping_a_queue_leaves_its_storage_to_the_others(self, harness: Harness) -> None:
        one, two = harness.queue(echo, name="one"), harness.queue(echo, name="two")
        async with harness.started(two):
            async with harness.started(one):
                assert await harness.call(one.enqueue_and_wait, "a", 1) == 1
            assert await harness.call(two.enqueue_and_wait, "a", 2) == 2
            assert (await harness.call(one.enqueue, "b", 3)).status == "queued"

    @case
    async def test_stopping_leaves_no_thread_no_task_and_no_socket(self, harness: Harness) -> None:
        gc.collect()
        before, storage = Resources(), harness.reopen()

        async def cycle(n: int) -> None:
            queue, worker = harness.queue(echo, storage=storage), harness.queue(echo, name="other", storage=storage)
            async with harness.started(queue), harness.started(harness.worker(worker)):
                assert await harness.call(queue.enqueue_and_wait, f"{n}", n) == n
                assert await harness.call(worker.enqueue_and_wait, f"{n}", n) == n

        await cycle(0)
        kept = Resources()  # A storage keeps connections for reuse, and may add one under load.
        for n in range(1, 6):
            await cycle(n)
        await harness.until(lambda: Resources().are_within(kept, 4), f"no more is left than {kept}")
        if harness.mode == "async":
            await storage.operations("async").close()
        storage.close()
        await harness.until(lambda: Resources().are_within(before), f"no more is left than {before}")
