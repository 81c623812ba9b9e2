"""Tasks are enqueued, run and followed, on every storage."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq import AsyncJob, Job, JobFailedError, JobNotFoundError, NewJob, ValidationError

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness


@dataclass
class Receipt:
    order: int
    copies: int
    at: datetime


def test_a_task_runs_with_its_arguments_and_returns_its_type(harness: Harness) -> None:
    async def case() -> None:
        mail = harness.queue(concurrency=4)

        @mail.task
        def receipt(order: int, *, copies: int = 1) -> Receipt:
            return Receipt(order, copies, datetime(2026, 1, 31, tzinfo=UTC))

        @mail.task(name="coroutine")
        async def other(*orders: int, **names: str) -> set[str]:
            await asyncio.sleep(0)
            return {names[key] * orders[0] for key in names}

        expected = Receipt(7, 2, datetime(2026, 1, 31, tzinfo=UTC))
        assert receipt(7, copies=2) == expected
        async with harness.started(mail):
            handle = await harness.call(receipt.enqueue, 7, copies=2)
            assert (handle.queue, await harness.call(handle.result)) == ("mail", expected)
            status = await harness.call(handle.status)
            assert (status.state, status.task, status.id) == ("completed", "receipt", handle.id)
            second = await harness.call(other.enqueue, 2, 3, a="x", b="y")
            assert await harness.call(second.result, timeout=30) == {"xx", "yy"}
            assert (await harness.call(second.status)).task == "coroutine"

    harness.run(case())


def test_a_batch_mixes_calls_jobs_and_pairs(harness: Harness) -> None:
    async def case() -> None:
        mail, other = harness.queue(), harness.queue(name="other")
        client = harness.client()

        @mail.task(priority=1, headers={"from": "shop"})
        def double(number: int) -> int:
            return number * 2

        @mail.execute
        def handle(job: Job) -> Any:
            return [job.payload, job.task, dict(job.headers)]

        payload = {"task": "double", "args": [4], "kwargs": {}}
        jobs = [
            double.call(1),
            double.using(priority=9, id="two").call(2),
            NewJob("three", {"task": "double", "args": [], "kwargs": {"number": 3}}, headers={"a": "b"}),
            ("four", payload),
            ("plain", {"no": "task"}),
            NewJob("headed", 5, headers={"trace": "é"}),
        ]
        results = await harness.call(mail.enqueue_many, jobs)
        ids = [result.id for result in results]
        assert ids[1:] == ["two", "three", "four", "plain", "headed"]
        with pytest.raises(ValidationError, match="its task is on another queue"):
            await harness.call(other.enqueue_many, [double.call(1)])
        found = await harness.call(client.get_statuses, "mail", ids)
        assert [found[job_id].task for job_id in ids] == ["double"] * 4 + [None, None]
        assert [found[job_id].priority for job_id in ids] == [1, 9, 0, 0, 0, 0]
        assert [found[job_id].headers for job_id in ids] == [
            {"from": "shop"}, {"from": "shop"}, {"a": "b"}, None, None, {"trace": "é"}
        ]  # fmt: skip
        assert {job.id for job in await harness.call(client.find_jobs, "mail", task="double")} == set(ids[:4])
        assert await harness.call(client.find_jobs, task="unknown") == []
        async with harness.started(mail):
            assert [await harness.call(client.wait, "mail", job_id) for job_id in ids] == [
                2, 4, 6, 8, [{"no": "task"}, None, {}], [5, None, {"trace": "é"}]
            ]  # fmt: skip

    harness.run(case())


def test_wait_answers_for_every_end_of_a_job(harness: Harness) -> None:
    async def case() -> None:
        mail = harness.queue()
        client = harness.client()

        @mail.task(max_attempts=1)
        def fail() -> None:
            raise LookupError("gone")

        @mail.task
        def succeed() -> None:
            return None

        with pytest.raises(JobNotFoundError, match="there is no job 'nothing'"):
            await harness.call(client.wait, "mail", "nothing")
        late = await harness.call(succeed.using(delay=3600).enqueue)
        with pytest.raises(pgjq.TimeoutError, match="has not ended within"):
            await harness.call(client.wait, "mail", late.id, timeout=0.01)
        assert (await harness.call(late.cancel)).status == "cancelled"
        with pytest.raises(pgjq.JobCancelledError):
            await harness.call(late.result)
        handle = await harness.call(fail.enqueue)
        waiting = harness.background(handle.result)
        async with harness.started(mail):
            with pytest.raises(JobFailedError, match="gone"):
                await waiting()
            assert (await harness.call(late.retry)).state == "queued"
            assert await harness.call(late.result) is None

    harness.run(case())


def test_the_current_job_is_known_everywhere_in_a_run(memory: Harness) -> None:
    async def case() -> None:
        mail = memory.queue(concurrency=3)
        seen: dict[str, Any] = {}

        @mail.task
        def plain() -> None:
            job = pgjq.current_job()
            seen["plain"] = type(job), job.id, job.task

        @mail.task
        async def coroutine() -> None:
            job = pgjq.current_job()
            seen["coroutine"] = type(job), job.id, job.task
            assert await asyncio.to_thread(pgjq.current_job) is job

        @mail.execute
        def handle(job: Job, done: Any) -> None:
            seen["handler"] = pgjq.current_job() is job
            done()

        with pytest.raises(pgjq.PgjqError, match="no job is being processed here"):
            pgjq.current_job()
        async with memory.started(mail):
            handles = [await memory.call(task.enqueue) for task in (plain, coroutine)]
            await memory.call(mail.enqueue_and_wait, "h", 1)
            for each in handles:
                await memory.call(each.result)
        assert seen == {
            "plain": (Job, handles[0].id, "plain"),
            "coroutine": (AsyncJob, handles[1].id, "coroutine"),
            "handler": True,
        }

    memory.run(case())
