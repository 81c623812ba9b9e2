"""How a sleeping worker hears of jobs: its event loop reads notifications, and no writer's commit is missed."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq import AsyncClient, Client, PostgresStorage, Queue
from pgjq.storage.postgres import listener as listening
from pgjq.storage.postgres.listen_connection import ListenConnection
from tests.worker.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

SLEEP = 60.0
FOR_EVER = 600.0  # As a poll: notifications alone must wake the worker.


def threads_that_read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    read = ListenConnection.read

    def noted(self: ListenConnection, *, blocking: bool = True) -> None:
        names.append(threading.current_thread().name)
        read(self, blocking=blocking)

    monkeypatch.setattr(ListenConnection, "read", noted)
    return names


async def asleep(storage: PostgresStorage) -> asyncio.Task[bool]:
    """Let a worker fall asleep on the running loop, and wait until writers see it."""
    operations = storage.operations("async")
    sleep = asyncio.create_task(operations.wait_for_work(["q"], SLEEP, FOR_EVER))
    listener = storage._listener
    await asyncio.to_thread(until, lambda: listener._read_on_loops and listener._registered)
    return sleep


def on_a_listening_storage(database: str, work: Callable[[PostgresStorage], Any]) -> Any:
    """Run a coroutine on a storage whose listener has connected; close both."""

    async def run() -> Any:
        storage = PostgresStorage(database)
        operations = storage.operations("async")
        await operations.wait_for_work(["q"], 0.01, FOR_EVER)  # Connects.
        try:
            return await work(storage)
        finally:
            await operations.close()
            storage.close()

    return asyncio.run(run())


def test_the_event_loop_of_a_sleeping_worker_reads_its_notification(
    database: str, postgres: PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = threads_that_read(monkeypatch)

    async def work(storage: PostgresStorage) -> bool:
        sleep = await asleep(storage)
        names.clear()
        await asyncio.to_thread(Client(postgres).enqueue, "q", "a", 1)
        return await sleep

    assert on_a_listening_storage(database, work)
    assert set(names) == {threading.current_thread().name}


def test_a_caller_gets_its_answer_while_a_handler_blocks_the_event_loop_of_a_worker(
    database: str, postgres: PostgresStorage
) -> None:
    """Both share a storage, and so its listening connection, which the worker's loop was reading."""
    other = Queue("other", storage=postgres, block_timeout=FOR_EVER)
    other.execute(lambda job: job.payload)

    async def work(storage: PostgresStorage) -> Any:
        sleep = await asleep(storage)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(Client(storage).enqueue_and_wait, "other", "a", 7, timeout=SLEEP)
            answer = asking.result(SLEEP)  # Blocks the loop.
        sleep.cancel()
        await asyncio.gather(sleep, return_exceptions=True)
        return answer

    with other:
        assert on_a_listening_storage(database, work) == 7


def test_a_sleeping_worker_hears_of_jobs_after_its_listening_connection_was_cut(database: str) -> None:
    async def work(storage: PostgresStorage) -> bool:
        sleep = await asleep(storage)
        with psycopg.connect(database, autocommit=True) as operator:
            operator.execute(
                "select pg_terminate_backend(pid) from pg_stat_activity"
                " where application_name = 'pgjq listener' and datname = current_database()"
            )
        woken = await sleep  # By the loss itself: something may have been missed.
        second = await asleep(storage)
        await AsyncClient(storage).enqueue("q", "a", 1)
        return woken and await second

    assert on_a_listening_storage(database, work)


def test_a_job_of_a_writer_that_commits_while_a_worker_falls_asleep_is_found(database: str) -> None:
    """The writer checked for sleeping workers before this one slept, so its commit notifies none."""
    with psycopg.connect(database) as writer, psycopg.connect(database, autocommit=True) as reader:
        writer.execute("select pgjq.enqueue_job('q', 'a', '1', '{}')")

        def seconds() -> Any:
            row = reader.execute("select pgjq.seconds_until_work('{q}')").fetchone()
            assert row is not None
            return row[0]

        assert seconds() == 0.25
        writer.commit()
        assert seconds() == 0


def test_probes_are_seldom_while_only_workers_listen(database: str) -> None:
    async def work(storage: PostgresStorage) -> list[float]:
        sleep = await asleep(storage)
        just_heard: Any = SimpleNamespace(last_word=0.0)
        seldom = storage._listener._probe_at(just_heard)
        events = await storage.operations("async").subscribe()
        often = storage._listener._probe_at(just_heard)
        await events.close()
        sleep.cancel()
        await asyncio.gather(sleep, return_exceptions=True)
        return [seldom, often]

    assert on_a_listening_storage(database, work) == [listening.PROBE_SELDOM_SECONDS, listening.PROBE_SECONDS]
