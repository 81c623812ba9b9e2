"""Handlers that block the event loop, or every thread that it has, do not block the worker's stop."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import AsyncJob, AsyncQueue, Client, PostgresStorage, Queue
from pgjq.deadline import run_on_thread
from pgjq.worker import executor
from pgjq.worker.daemon_executor import DaemonExecutor
from tests.worker.conftest import until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Storage

LIMIT = 30.0
MANY = 40  # More than the threads of asyncio.to_thread: 32 at most.


def ends(call: Callable[[], object]) -> bool:
    """Tell whether a call returns within the limit; one that does not is left to its thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return not thread.is_alive()


def states(storage: Storage) -> set[tuple[str, int]]:
    return {(job.state, job.attempts) for job in Client(storage).find_jobs("q")}


class Occupied:
    """A handler that waits on a thread of `asyncio.to_thread`."""

    def __init__(self) -> None:
        self.running = 0
        self.all_run, self.release = threading.Event(), threading.Event()

    async def handle(self, _job: AsyncJob) -> None:
        self.running += 1
        if self.running == MANY:
            self.all_run.set()
        await asyncio.to_thread(self.release.wait, 2 * LIMIT)


def test_handlers_that_occupy_every_thread_delay_no_stop(storage: Storage) -> None:
    occupied = Occupied()
    queue = Queue("q", storage=storage, concurrency=MANY, block_timeout=300)
    queue.execute(occupied.handle)
    queue.enqueue_many([(f"{n}", None) for n in range(MANY)])
    queue.start()
    assert occupied.all_run.wait(60)
    try:
        assert ends(lambda: queue.stop(0.1))
        assert states(storage) == {("queued", 0)}
    finally:
        occupied.release.set()


def test_handlers_that_occupy_every_thread_delay_no_stop_on_the_callers_loop(storage: Storage) -> None:
    async def main() -> bool:
        queue = AsyncQueue("q", storage=storage, concurrency=MANY, block_timeout=300)
        queue.execute(occupied.handle)
        await queue.enqueue_many([(f"{n}", None) for n in range(MANY)])
        await queue.start()
        await run_on_thread(occupied.all_run.wait)
        stopping = asyncio.create_task(queue.stop(0.1))
        await asyncio.wait([stopping], timeout=LIMIT)
        ended = stopping.done()
        occupied.release.set()
        await stopping
        await storage.operations("async").close()
        return ended

    occupied = Occupied()
    assert asyncio.run(main())
    assert states(storage) == {("queued", 0)}


def test_a_coroutine_that_blocks_the_loop_is_released_by_a_stop(storage: Storage) -> None:
    begun, release = threading.Event(), threading.Event()
    aborted: list[str | None] = []

    async def block(job: AsyncJob) -> None:
        begun.set()
        release.wait(2 * LIMIT)
        aborted.append(job.signal.reason)

    queue = Queue("q", storage=storage, block_timeout=300)
    queue.execute(block)
    queue.enqueue("blocks", None)
    queue.start()
    assert begun.wait(60)
    try:
        assert ends(lambda: queue.stop(0.1))
        assert states(storage) == {("queued", 0)}
    finally:
        release.set()
    until(lambda: not any(thread.name == "pgjq late stop" for thread in threading.enumerate()))
    assert aborted == ["shutdown"]
    assert states(storage) == {("queued", 0)}


def test_a_coroutine_that_ignores_its_cancellation_is_left(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where cleaning up may take long: what a stop may take limits it."""
    monkeypatch.setattr(executor, "CLEANUP_SECONDS", 600.0)

    async def main() -> bool:
        begun, release, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def ignore(_job: AsyncJob) -> None:
            begun.set()
            while not release.is_set():
                try:
                    await release.wait()
                except asyncio.CancelledError:
                    continue
            over.set()

        queue = AsyncQueue("q", storage=storage, block_timeout=300)
        queue.execute(ignore)
        await queue.enqueue("a", None)
        await queue.start()
        await begun.wait()
        stopping = asyncio.create_task(queue.stop(0.1))
        await asyncio.wait([stopping], timeout=LIMIT)
        ended = stopping.done()
        release.set()
        await over.wait()
        await stopping
        await storage.operations("async").close()
        return ended

    assert asyncio.run(main())
    assert "handler abandoned: it did not end when it was cancelled" in caplog.messages
    assert states(storage) == {("queued", 0)}


PROGRAM = textwrap.dedent(
    """
    import asyncio, sys, time, pgjq
    style = sys.argv[2]
    queue = (pgjq.Queue if style == "thread" else pgjq.AsyncQueue)(
        "q", storage=pgjq.PostgresStorage(sys.argv[1]), grace=0.1, block_timeout=300
    )

    @queue.execute
    async def work(job):
        print("working", flush=True)
        if style == "blocks":
            time.sleep(600)
        elif style == "thread":
            await asyncio.to_thread(time.sleep, 600)
        elif style == "statement":
            async with job.transaction() as connection:
                await connection.execute("select pg_sleep(600)")
        elif style == "ignores":
            while True:
                try:
                    await asyncio.sleep(600)
                except asyncio.CancelledError:
                    pass
        else:
            await asyncio.sleep(600)

    queue.run() if style == "thread" else asyncio.run(queue.run())
    """
)


@pytest.mark.parametrize(
    ("style", "silent", "status"),
    [
        ("blocks", False, 1),
        ("thread", False, 0),
        ("ignores", False, 0),
        ("sleeps", True, 0),
        ("statement", True, 0),
        ("blocks", True, 1),
    ],
)
def test_sigterm_ends_the_process_whatever_a_coroutine_does(
    database: str, postgres: PostgresStorage, style: str, status: int, *, silent: bool
) -> None:
    Client(postgres).enqueue("q", "a", None)
    with (
        Proxy(database) as proxy,
        subprocess.Popen(
            [sys.executable, "-c", PROGRAM, proxy.conninfo, style], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        if silent:
            proxy.silence()
        process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(LIMIT / 2) == status
        finally:
            process.kill()
            proxy.restore()
    if not silent:
        assert states(postgres) == {("queued", 0)}


def test_a_loop_that_ends_while_the_server_is_silent_waits_for_no_pool(database: str) -> None:
    """asyncio.run cancels all tasks, also those of a storage that was not closed and that connects just then."""

    async def main() -> None:
        queue = AsyncQueue("q", storage=storage)
        await queue.enqueue("a", None)
        proxy.silence()
        proxy.cut()
        calls.append(asyncio.create_task(queue.enqueue("b", None)))
        await run_on_thread(lambda: until(lambda: proxy._writers))

    calls: list[asyncio.Task[Any]] = []
    with Proxy(database) as proxy:
        storage = PostgresStorage(proxy.conninfo)
        try:
            assert ends(lambda: asyncio.run(main()))
        finally:
            proxy.restore()
        storage.close()
    assert calls[0].cancelled()


def test_a_loop_that_cancels_all_its_tasks_and_goes_on_can_be_used_again(postgres: PostgresStorage) -> None:
    async def main() -> list[str]:
        queue = AsyncQueue("q", storage=postgres)
        first = await queue.enqueue("a", None)
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.1)
        second = await queue.enqueue("b", None)
        await postgres.operations("async").close()
        return [first.status, second.status]

    assert asyncio.run(main()) == ["queued", "queued"]


def test_daemon_threads_run_every_call_and_raise_what_it_raises() -> None:
    def work(number: int) -> int:
        time.sleep(0.001)
        names.add(threading.current_thread().name)
        if number == 7:
            raise ValueError(number)
        return number

    names: set[str] = set()
    threads = DaemonExecutor(3)
    with ThreadPoolExecutor(4) as callers:
        futures = [future.result() for future in [callers.submit(threads.submit, work, n) for n in range(50)]]
    assert [future.result() for n, future in enumerate(futures) if n != 7] == [n for n in range(50) if n != 7]
    with pytest.raises(ValueError, match="7"):
        futures[7].result()
    assert len(names) <= 3
    threads.shutdown()
    until(lambda: not any(thread.name.startswith("pgjq to_thread") for thread in threading.enumerate()))


def test_a_call_that_was_cancelled_before_it_began_does_not_run() -> None:
    release, ran = threading.Event(), list[Any]()
    threads = DaemonExecutor(1)
    first, second = threads.submit(release.wait, 60), threads.submit(ran.append, os.getpid())
    assert second.cancel()
    release.set()
    assert first.result()
    threads.shutdown()
    until(lambda: not any(thread.name.startswith("pgjq to_thread") for thread in threading.enumerate()))
    assert ran == []
