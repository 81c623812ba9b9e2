"""Middleware around every run and every enqueue."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq import AsyncJob, EnqueueResult, Job, JobFailedError, MemoryStorage, NewJob, Queue, ValidationError, Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.testing.worker.harness import Harness

trail: contextvars.ContextVar[tuple[str, ...]] = contextvars.ContextVar("trail", default=())


class Plain:
    """Middleware of plain functions."""

    def __init__(self, name: str, log: list[Any]) -> None:
        self.name = name
        self.log = log

    def run(self, job: Any, call_next: Callable[[Any], Any]) -> Any:
        assert isinstance(job, Job)
        assert pgjq.current_job() is job
        trail.set((*trail.get(), self.name))
        self.log.append(f"{self.name} before")
        try:
            return [self.name, call_next(job)]
        except ValueError:
            self.log.append(f"{self.name} saw the error")
            raise
        finally:
            self.log.append(f"{self.name} after")

    def enqueue(self, new_job: NewJob, call_next: Callable[[NewJob], EnqueueResult]) -> EnqueueResult:
        self.log.append((self.name, new_job.id))
        headers = {**(new_job.headers or {}), self.name: "1"}
        result = call_next(replace(new_job, headers=headers))
        assert (result.status, result.id) == ("queued", new_job.id)
        return result


class Awaiting(Plain):
    """Middleware of coroutines."""

    async def run(self, job: Any, call_next: Callable[[Any], Any]) -> Any:  # type: ignore[override]
        assert isinstance(job, AsyncJob)
        assert pgjq.current_job() is job
        trail.set((*trail.get(), self.name))
        await asyncio.sleep(0)
        self.log.append(f"{self.name} before")
        try:
            return [self.name, await call_next(job)]
        except ValueError:
            self.log.append(f"{self.name} saw the error")
            raise
        finally:
            self.log.append(f"{self.name} after")

    async def enqueue(self, new_job: NewJob, call_next: Callable[[NewJob], Any]) -> EnqueueResult:  # type: ignore[override]
        await asyncio.sleep(0)
        self.log.append((self.name, new_job.id))
        headers = {**(new_job.headers or {}), self.name: "1"}
        result = await call_next(replace(new_job, headers=headers))
        assert (result.status, result.id) == ("queued", new_job.id)
        return result


KINDS = {"p": Plain, "a": Awaiting}


@pytest.mark.parametrize("kinds", ["pp", "aa", "pa", "ap", "apa", "pap"])
def test_runs_pass_through_all_middleware_outermost_first(memory: Harness, kinds: str) -> None:
    async def case() -> None:
        log: list[Any] = []
        middleware: list[Any] = [KINDS[kind](f"{kind}{n}", log) for n, kind in enumerate(kinds)]
        mail = memory.queue(middleware=middleware[1:])

        @mail.task(max_attempts=1)
        def plain(number: int) -> Any:
            assert isinstance(pgjq.current_job(), Job)
            return [number, *trail.get()]

        @mail.task(max_attempts=1)
        async def coroutine(number: int) -> Any:
            assert isinstance(pgjq.current_job(), AsyncJob)
            await pgjq.current_job().heartbeat()  # type: ignore[misc]
            return [number, *trail.get()]

        @mail.task(max_attempts=1)
        async def fail() -> None:
            raise ValueError("no")

        @mail.execute
        def handler(job: Any, done: Any) -> None:
            done(None, [job.payload, *trail.get()])

        names = [item.name for item in middleware]
        async with memory.started(memory.worker(mail, middleware=middleware[:1], concurrency=4)):
            for task in (plain, coroutine):
                log.clear()
                expected: Any = [7, *names]
                for name in reversed(names):
                    expected = [name, expected]
                assert await memory.call((await memory.call(task.enqueue, 7)).result) == expected
                ran = [line for line in log if isinstance(line, str)]
                assert ran == [f"{name} before" for name in names] + [f"{name} after" for name in reversed(names)]
            assert str(names[-1]) in str(await memory.call(mail.enqueue_and_wait, None, 7))
            with pytest.raises(JobFailedError, match="no"):
                await memory.call((await memory.call(fail.enqueue)).result)
            assert [line for line in log if "saw" in line] == [f"{name} saw the error" for name in reversed(names)]

    memory.run(case())


@pytest.mark.parametrize("kinds", ["pp", "aa", "pa", "ap"])
def test_enqueues_pass_through_all_middleware(memory: Harness, kinds: str) -> None:
    async def case() -> None:
        log: list[Any] = []
        mail = memory.queue(middleware=[KINDS[kind](f"{kind}{n}", log) for n, kind in enumerate(kinds)])
        names = [f"{kind}{n}" for n, kind in enumerate(kinds)]

        @mail.task(retry_delay=5)
        def receipt(order: int) -> None: ...

        handle = await memory.call(receipt.enqueue, 1)
        await memory.call(mail.enqueue, "two", 2, headers={"x": "y"})
        await memory.call(mail.send, 3)
        results = await memory.call(mail.enqueue_many, [receipt.call(4), ("five", 5), NewJob("six", 6), ("five", 7)])
        assert [result.status for result in results] == ["queued", "queued", "queued", "duplicate"]
        with pytest.raises(pgjq.TimeoutError):
            await memory.call(mail.enqueue_and_wait, "eight", 8, timeout=0.01)
        jobs = await memory.call(memory.client().find_jobs, "mail")
        assert len(jobs) == 7
        assert all(job.headers.keys() >= set(names) for job in jobs)
        assert next(job for job in jobs if job.id == "two").headers["x"] == "y"
        assert [line[0] for line in log if line[1] == handle.id] == names
        assert len(log) == 8 * len(names)

    memory.run(case())


def test_middleware_may_keep_jobs_out_or_refuse_them(memory: Harness) -> None:
    async def case() -> None:
        class Filter:
            def enqueue(self, new_job: NewJob, call_next: Callable[[NewJob], EnqueueResult]) -> Any:
                match new_job.payload:
                    case "out":
                        return EnqueueResult("duplicate", str(new_job.id))
                    case "wrong":
                        return None
                    case "raise":
                        raise LookupError("refused")
                call_next(new_job)
                return None  # What it returns after going on does not matter.

        mail = memory.queue(middleware=[Filter()])
        results = await memory.call(mail.enqueue_many, [("a", 1), ("b", "out"), ("c", 2)])
        assert [(result.id, result.status) for result in results] == [
            ("a", "queued"), ("b", "duplicate"), ("c", "queued")
        ]  # fmt: skip
        with pytest.raises(ValidationError, match="middleware kept job 'd' out and returned None"):
            await memory.call(mail.enqueue_many, [("e", 1), ("d", "wrong")])
        with pytest.raises(LookupError):
            await memory.call(mail.enqueue_many, [("e", 1), ("d", "raise")])
        assert await memory.call(mail.get_status, "e") is None

    memory.run(case())


@pytest.mark.parametrize("middleware", [[object()], 7, [Plain]])
def test_wrong_middleware_is_refused(middleware: Any) -> None:
    with pytest.raises(ValidationError, match="middleware"):
        Queue("q", storage=MemoryStorage(), middleware=middleware)
    queue = Queue("q", storage=MemoryStorage())
    queue.execute(print)
    with pytest.raises(ValidationError, match="middleware"):
        Worker(queue, middleware=middleware)


def test_a_stop_ends_a_coroutine_inside_of_plain_middleware() -> None:
    queue = Queue("q", storage=MemoryStorage(), middleware=[Plain("plain", [])], grace=0)
    started = threading.Event()

    @queue.task
    async def forever() -> None:
        started.set()
        await asyncio.Event().wait()

    with queue:
        handle = forever.enqueue()
        assert started.wait(30)
    assert (status := handle.status())
    assert (status.state, status.attempts) == ("queued", 0)
