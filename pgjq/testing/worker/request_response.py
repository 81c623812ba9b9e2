"""Worker suite: a waiter gets a result or an error, however the job ends or vanishes."""

from __future__ import annotations

import asyncio
import builtins
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq.errors import (
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    MaxRetriesError,
    StorageError,
    TimeoutError,
)
from pgjq.lease import LeasePolicy
from pgjq.outcome import Discard, Snooze
from pgjq.reaper import Reaper
from pgjq.testing.case_selection import requires
from pgjq.testing.worker.cases import WorkerCases, case
from pgjq.testing.worker.harness import LIMIT, QUEUE, echo

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness, Style


class RequestResponse(WorkerCases):
    """Waiting for a job."""

    @case
    async def test_a_waiter_gets_the_result_after_retries_and_snoozes(self, harness: Harness, style: Style) -> None:
        runs: list[int] = []

        def handler(job: Any) -> Any:
            runs.append(job.attempts)
            if len(runs) == 1:
                raise Snooze(delay=0)
            if len(runs) == 2:
                raise ValueError("not yet")
            return job.payload

        queue = harness.queue(handler, style=style)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, None, {"a": 1}) == {"a": 1}
        assert runs == [1, 1, 2]

    @case
    async def test_a_waiter_that_came_before_the_worker_is_told(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        waiter = harness.background(queue.enqueue_and_wait, "a", 1)
        await harness.until_state(queue, "a", "queued")
        async with harness.started(queue):
            assert await waiter() == 1

    @case
    async def test_a_client_waits_as_a_queue_does(self, harness: Harness) -> None:
        queue, client = harness.queue(echo), harness.client()
        async with harness.started(queue):
            assert await harness.call(client.enqueue_and_wait, QUEUE, "a", [1], timeout=LIMIT) == [1]

    @case
    async def test_waiters_of_one_id_join_one_job(self, harness: Harness) -> None:
        ran: list[int] = []

        def handler(job: Any) -> Any:
            ran.append(job.payload)
            return {"payload": job.payload}

        queue = harness.queue(handler)
        await harness.call(queue.enqueue, "a", 0)

        async def wait_or_start(n: int) -> Any:
            if n == 0:
                return await harness.start(queue)
            return await harness.call(queue.enqueue_and_wait, "a", n, timeout=LIMIT)

        assert (await harness.together(9, wait_or_start))[1:] == [{"payload": 0}] * 8
        assert ran == [0]

    @case
    async def test_many_waiters_get_each_their_own_result(self, harness: Harness) -> None:
        queue = harness.queue(echo, concurrency=4)
        async with harness.started(queue):
            results = await harness.together(40, lambda n: harness.call(queue.enqueue_and_wait, f"{n}", n))
        assert results == list(range(40))

    @case
    async def test_a_cached_result_returns_at_once_and_expires(self, harness: Harness) -> None:
        runs: list[int] = []

        def handler(job: Any) -> int:
            runs.append(job.payload)
            return len(runs)

        queue = harness.queue(handler)
        async with harness.started(queue):
            assert await harness.call(queue.enqueue_and_wait, "a", 1, result_ttl=0.3) == 1
            assert await harness.call(queue.enqueue_and_wait, "kept", 2) == 2
            answer = await harness.call(queue.enqueue, "kept", 3)
            assert (answer.status, answer.id, answer.result) == ("completed", "kept", 2)
            await harness.until(lambda: _is_absent(harness, queue, "a"), "the result expires")
            assert await harness.call(queue.get_result, "a", "absent") == "absent"
            assert await harness.call(queue.enqueue_and_wait, "a", 4) == 3
        assert await harness.call(queue.enqueue_and_wait, "kept", 5) == 2
        assert runs == [1, 2, 4]

    @case
    async def test_the_first_enqueue_decides_how_long_a_result_is_kept(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        await harness.call(queue.enqueue, "a", 1, result_ttl=3600)
        waiter = harness.background(queue.enqueue_and_wait, "a", 2, result_ttl=0.01)
        async with harness.started(queue):
            assert await waiter() == 1
        await harness.sleep(0.05)
        assert await harness.call(queue.get_result, "a") == 1

    @case
    async def test_a_failed_job_tells_its_waiter_why(self, harness: Harness, style: Style) -> None:
        def handler(job: Any) -> None:
            raise Discard("never") if job.payload == "discard" else ValueError("no such thing")

        queue = harness.queue(handler, style=style, max_attempts=2)
        async with harness.started(queue):
            with pytest.raises(MaxRetriesError, match="no such thing") as raised:
                await harness.call(queue.enqueue_and_wait, "a", {"n": 1})
            with pytest.raises(JobFailedError, match="never") as discarded:
                await harness.call(queue.enqueue_and_wait, "b", "discard")
        error = raised.value
        assert (error.payload, error.attempts, error.original_error.type) == ({"n": 1}, 2, "ValueError")
        assert not isinstance(discarded.value, MaxRetriesError)
        assert discarded.value.original_error.message == "never"

    @case
    async def test_a_failed_id_runs_again_unless_it_counts_as_duplicate(self, harness: Harness) -> None:
        def handler(job: Any) -> Any:
            return 1 / job.payload

        queue = harness.queue(handler, max_attempts=1)
        async with harness.started(queue):
            with pytest.raises(JobFailedError):
                await harness.call(queue.enqueue_and_wait, "a", 0)
            with pytest.raises(JobFailedError):
                await harness.call(queue.enqueue_and_wait, "a", 1, on_failed="duplicate")
            assert await harness.call(queue.enqueue_and_wait, "a", 1) == 1

    @case
    async def test_a_waiter_of_a_cancelled_or_deleted_job_is_told(self, harness: Harness) -> None:
        queue, client = harness.queue(), harness.client()
        cancelled, deleted = (harness.background(queue.enqueue_and_wait, name, 1) for name in ("cancel", "delete"))
        await harness.until_state(queue, "cancel", "queued")
        await harness.until_state(queue, "delete", "queued")
        await harness.call(queue.cancel, "cancel")
        assert await harness.call(client.delete_job, QUEUE, "delete")
        with pytest.raises(JobCancelledError):
            await cancelled()
        with pytest.raises(JobNotFoundError):
            await deleted()

    @case
    @requires("definitions")
    async def test_waiters_are_told_when_their_queue_is_deleted(self, harness: Harness) -> None:
        queue, client = harness.queue(), harness.client()
        await harness.call(client.create_queue, QUEUE)
        waiters = [harness.background(queue.enqueue_and_wait, f"{n}", n) for n in range(3)]
        for n in range(3):
            await harness.until_state(queue, f"{n}", "queued")
        await harness.call(client.delete_queue, QUEUE)
        for waiter in waiters:
            with pytest.raises(JobNotFoundError):
                await waiter()

    @case
    async def test_bulk_operations_tell_every_waiter(self, harness: Harness) -> None:
        queue, client = harness.queue(), harness.client()
        cancelled, deleted = (harness.background(queue.enqueue_and_wait, name, 1) for name in ("cancel", "delete"))
        await harness.until_state(queue, "cancel", "queued")
        await harness.until_state(queue, "delete", "queued")
        await harness.call(client.cancel, QUEUE, "cancel")
        assert await harness.call(client.delete_many, QUEUE, state="queued") == 1
        with pytest.raises(JobCancelledError):
            await cancelled()
        with pytest.raises(JobNotFoundError):
            await deleted()
        other = harness.background(queue.enqueue_and_wait, "other", 1)
        await harness.until_state(queue, "other", "queued")
        assert await harness.call(client.cancel_many, QUEUE, state="queued") == 1
        with pytest.raises(JobCancelledError):
            await other()

    @case
    @pytest.mark.parametrize("mode", ["async"])
    async def test_a_waiter_is_told_when_its_waiting_job_is_pruned(self, harness: Harness) -> None:
        queue, ops = harness.queue(), harness.storage.operations("async")
        waiter = harness.background(queue.enqueue_and_wait, "a", 1, retention_seconds=1)

        async def is_pruned() -> bool:
            await ops.prune()
            return await queue.get_status("a") is None

        await harness.until_state(queue, "a", "queued")
        await harness.until(is_pruned, "the job is pruned")
        with pytest.raises(JobNotFoundError):
            await waiter()

    @case
    async def test_a_waiter_survives_a_stall_and_is_told_of_the_last_one(self, harness: Harness) -> None:
        queue = harness.queue(lease_policy=LeasePolicy(lease=0.05, heartbeat=None, reap_interval=0))
        waiter = harness.background(queue.enqueue_and_wait, "a", 1, max_attempts=2)
        await harness.until_state(queue, "a", "queued")
        ops = harness.storage.operations("async" if harness.mode == "async" else "sync")
        with Reaper(storage=harness.storage):
            for state in ("failing", "failed"):
                assert await ops.claim([QUEUE], worker="dead", limit=1, policy=queue.lease_policy)
                await harness.until_state(queue, "a", state)
        with pytest.raises(MaxRetriesError):
            await waiter()

    @case
    async def test_a_waiter_of_an_attempt_that_expires_is_told(self, harness: Harness) -> None:
        let_go = threading.Event()
        queue = harness.queue(lambda _job: let_go.wait(LIMIT), lease_policy=LeasePolicy(expire=0.2), max_attempts=1)
        async with harness.started(queue):
            with pytest.raises(MaxRetriesError) as raised:
                await harness.call(queue.enqueue_and_wait, "a", None)
            let_go.set()
        assert "TimeoutError" in raised.value.original_error.type

    @case
    async def test_a_time_out_leaves_the_job_to_run(self, harness: Harness) -> None:
        let_go = threading.Event()
        queue = harness.queue(lambda job: let_go.wait(LIMIT) and job.payload)
        async with harness.started(queue):
            with pytest.raises(TimeoutError) as raised:
                await harness.call(queue.enqueue_and_wait, "a", "answer", timeout=0.1)
            assert isinstance(raised.value, builtins.TimeoutError)
            again = harness.background(queue.enqueue_and_wait, "a", "another", timeout=LIMIT)
            let_go.set()
            assert await again() == "answer"

    @case
    async def test_a_waiter_that_gives_up_leaves_the_others_waiting(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        patient = harness.background(queue.enqueue_and_wait, "a", 1, timeout=LIMIT)
        await harness.until_state(queue, "a", "queued")
        with pytest.raises(TimeoutError, match="no worker"):
            await harness.call(queue.enqueue_and_wait, "a", 2, timeout=0.05)
        if harness.mode == "async":
            task = asyncio.ensure_future(queue.enqueue_and_wait("a", 3))
            await asyncio.sleep(0.02)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            assert task.cancelled()
        async with harness.started(queue):
            assert await patient() == 1

    @case
    async def test_closing_the_storage_ends_every_wait(self, harness: Harness) -> None:
        storage = harness.reopen()
        queue = harness.queue(storage=storage)
        waiter = harness.background(queue.enqueue_and_wait, "a", 1)
        await harness.until_state(harness.queue(), "a", "queued")
        storage.close()
        with pytest.raises(StorageError, match="closed"):
            await waiter()

    @case
    async def test_each_waiter_of_a_cancelled_and_reused_id_gets_its_own_answer(self, harness: Harness) -> None:
        queue = harness.queue(echo)
        old = harness.background(queue.enqueue_and_wait, "a", "old")
        await harness.until_state(queue, "a", "queued")
        await harness.call(queue.cancel, "a")
        new = harness.background(queue.enqueue_and_wait, "a", "new")
        await harness.until_state(queue, "a", "queued")
        async with harness.started(queue):
            assert await new() == "new"
        with pytest.raises(JobCancelledError):
            await old()


async def _is_absent(harness: Harness, queue: Any, job_id: str) -> bool:
    return await harness.call(queue.get_result, job_id, "absent") == "absent"
