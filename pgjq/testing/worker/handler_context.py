"""Worker suite: handlers that use threads, processes, other queues and context variables."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.client import Client
from pgjq.queue import AsyncQueue, Queue
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo
from pgjq.testing.worker.process_resources import in_child

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness, Style

variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")


class HandlerContext(WorkerCases):
    """Where a handler runs, and what it may use there."""

    @case
    async def test_threads_in_a_handler_use_its_job_and_enqueue(self, harness: Harness) -> None:
        client = Client(harness.storage)

        def handler(job: Any) -> Any:
            def work(n: int) -> None:
                job.save_checkpoint({"n": n})
                job.heartbeat()
                client.enqueue("next", f"{job.id}-{n}", n)

            threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            return sorted(status.id for status in client.find_jobs("next"))

        queue = harness.queue(handler)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", None) == [f"a-{n}" for n in range(4)]

    @case
    @requires("processes")
    async def test_a_process_forked_in_a_handler_uses_the_same_storage(self, harness: Harness) -> None:
        def handler(job: Any) -> Any:
            idle = in_child(lambda: None)
            client = Client(harness.storage)
            busy = in_child(lambda: client.enqueue("next", "from the child", job.payload))
            client.enqueue("next", "from the parent", job.payload)
            return [idle, busy]

        queue = harness.queue(handler)
        async with harness.started(queue):
            ended = await harness.call(queue.enqueue_and_wait, "a", 1, timeout=3 * LIMIT)
            assert ended == ["ended with 0"] * 2
            found = await harness.call(harness.client().find_jobs, "next")
            assert [job.id for job in found] == ["from the child", "from the parent"]

    @case
    async def test_a_handler_enqueues_and_waits_in_its_own_mode_and_in_the_other(self, harness: Harness) -> None:
        blocking, suspending = Queue("inner", storage=harness.storage), AsyncQueue("inner", storage=harness.storage)

        def function(job: Any) -> Any:
            blocking.enqueue(f"{job.id}-left", 0)
            return blocking.enqueue_and_wait(job.id, job.payload, timeout=LIMIT)

        async def coroutine(job: Any) -> Any:
            await suspending.enqueue(f"{job.id}-left", 0)
            await asyncio.to_thread(blocking.enqueue, f"{job.id}-thread", 0)
            return await suspending.enqueue_and_wait(job.id, job.payload, timeout=LIMIT)

        one, two = harness.queue(function, name="one"), harness.queue(coroutine, name="two")
        inner = harness.queue(lambda job: [job.payload], name="inner")
        async with harness.started(inner), harness.started(one), harness.started(two):
            assert await harness.call(one.enqueue_and_wait, "a", 1) == [1]
            assert await harness.call(two.enqueue_and_wait, "b", 2) == [2]
            for name in ("a-left", "b-left", "b-thread"):
                assert (await harness.until_state(inner, name, "completed")).result == [0]

    @case
    @pytest.mark.parametrize("mode", ["async"])
    async def test_the_sync_api_works_on_the_thread_of_an_event_loop(self, harness: Harness) -> None:
        blocking = Queue(QUEUE, storage=harness.storage)
        queue = harness.queue(echo)
        async with harness.started(queue):
            assert blocking.enqueue("a", 1).status == "queued"
            await harness.until_state(queue, "a", "completed")
            assert blocking.get_result("a") == 1
            assert blocking.cancel("a").status == "completed"

    @case
    async def test_handlers_see_the_context_of_the_start_and_keep_theirs_to_themselves(
        self, harness: Harness, style: Style
    ) -> None:
        def handler(job: Any) -> str:
            seen = variable.get()
            variable.set(f"set by {job.id}")
            return seen

        queue = harness.queue(handler, style=style)
        token = variable.set("set before the start")
        try:
            async with harness.started(queue):
                seen = [await harness.call(queue.enqueue_and_wait, f"{n}", None) for n in range(3)]
        finally:
            variable.reset(token)
        assert seen == [seen[0]] * 3
        if harness.mode == "async":
            assert seen[0] == "set before the start"
