"""A server that takes bytes and never answers ends no wait by itself. Every wait ends all the same, in bounded time."""

from __future__ import annotations

import asyncio
import gc
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.storage.postgres import listen_connection, listener, server, watchdog
from tests.worker.conftest import until
from tests.worker.proxy import Proxy, Trap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pgjq.blocking import Mode

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ask about a silent session soon, and wait for the answer for a short time."""
    monkeypatch.setattr(watchdog, "SILENT_SECONDS", 0.5)
    monkeypatch.setattr(watchdog, "ASK_AGAIN_SECONDS", 0.5)
    monkeypatch.setattr(listen_connection, "ANSWER_SECONDS", 2.0)
    monkeypatch.setattr(server, "CONNECT_SECONDS", 2)
    return iter([None])


def call(storage: pgjq.PostgresStorage, mode: Mode, work: Callable[[Any], Any], *, before: Any = None) -> Any:
    """Call a client's methods, with something done in between."""
    if mode == "sync":
        client = pgjq.Client(storage)
        client.enqueue("q", "first", None)
        before()
        return work(client)

    async def both() -> Any:
        async_client = pgjq.AsyncClient(storage)
        await async_client.enqueue("q", "first", None)
        before()
        answer: Awaitable[Any] = work(async_client)
        try:
            return await answer
        finally:
            await async_client.close()
            await storage.operations("async").close()

    return asyncio.run(both())


@MODES
def test_a_call_whose_answer_never_comes_is_given_up(database: str, mode: Mode) -> None:
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        with pytest.raises(pgjq.StorageUnavailableError):
            call(storage, mode, lambda client: client.enqueue("q", "a", None), before=proxy.silence)
        storage.close()
        proxy.restore()


@MODES
def test_a_call_whose_answer_was_lost_is_given_up(database: str, mode: Mode) -> None:
    """The server has answered, and waits for its client; new connections are as good as ever."""
    trap = Trap(b"pgjq.get_jobs", "unanswered", hold=True)
    with Proxy(database, trap) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        with pytest.raises(pgjq.StorageUnavailableError):
            call(storage, mode, lambda client: client.get_status("q", "first"), before=lambda: None)
        assert trap.sprung.is_set()
        storage.close()


@MODES
@pytest.mark.parametrize("words", [b"schema_version", b"tcp_keepalives_idle"])
def test_a_new_connection_that_falls_silent_is_given_up(database: str, mode: Mode, words: bytes) -> None:
    """Its first statement checks the schema or configures the session, before a caller has it."""
    trap = Trap(words, "unanswered", hold=True)
    with Proxy(database, trap) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        with suppress(pgjq.StorageUnavailableError):
            call(storage, mode, lambda client: client.enqueue("q", "a", None), before=lambda: None)
        assert trap.sprung.is_set()
        storage.close()


def test_a_new_connection_of_a_background_thread_that_falls_silent_is_given_up(database: str) -> None:
    trap = Trap(b"tcp_keepalives_idle", "unanswered", hold=True)
    with Proxy(database, trap) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        assert drive(storage.dedicated().workers()) == []
        assert trap.sprung.is_set()
        storage.close()


@MODES
def test_one_silent_connection_is_enough_to_replace_all_idle_ones(database: str, mode: Mode) -> None:
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo, min_size=4)

        with pytest.raises(pgjq.StorageUnavailableError):
            call(storage, mode, lambda client: enqueue_twice(client, mode, proxy.forget), before=lambda: None)
        storage.close()
    with pgjq.Client(pgjq.PostgresStorage(database)) as near:
        assert near.get_status("q", "second") is not None


def enqueue_twice(client: Any, mode: Mode, forget: Callable[[], None]) -> Any:
    """Lose every connection, enqueue, and once more after the error of the first call, which is raised in the end."""

    def enqueue() -> None:
        client.storage._pools.sync_pool._pool.wait()
        forget()
        try:
            client.enqueue("q", "a", None)
        finally:
            client.enqueue("q", "second", None)

    async def enqueue_async() -> None:
        await client.storage._pools.async_pool._by_loop.peek().wait()
        forget()
        try:
            await client.enqueue("q", "a", None)
        finally:
            await client.enqueue("q", "second", None)

    return enqueue() if mode == "sync" else enqueue_async()


@MODES
def test_a_waiter_does_not_read_over_connections_that_died_with_the_listener(
    database: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would end its read: the watchdog asks about sessions too late here."""
    monkeypatch.setattr(watchdog, "SILENT_SECONDS", 600.0)
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.5)
    monkeypatch.setattr(listen_connection, "ANSWER_SECONDS", 0.5)
    near = pgjq.Queue("q", storage=pgjq.PostgresStorage(database), block_timeout=0.2)
    near.execute(lambda job: job.id)
    with Proxy(database) as proxy, ThreadPoolExecutor(1) as threads:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        waiting = threads.submit(
            call, storage, mode, lambda client: client.enqueue_and_wait("q", "a", None, timeout=60), before=lambda: None
        )
        until(lambda: near.get_status("a"))
        proxy.forget()
        with near:
            assert waiting.result(30) == "a"
        storage.close()
    near.storage.close()


@MODES
def test_a_caller_that_waits_for_a_result_is_told_in_its_own_time(database: str, mode: Mode) -> None:
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        with pytest.raises(pgjq.TimeoutError):
            call(storage, mode, lambda client: client.enqueue_and_wait("q", "a", None, timeout=1), before=proxy.silence)
        storage.close()
        proxy.restore()


@MODES
def test_a_question_that_is_not_answered_delays_no_deadline(
    database: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, over = threading.Event(), threading.Event()
    waited_in_vain: list[bool] = []

    def ask(_self: watchdog.Watchdog, _pids: list[int]) -> None:
        asked.set()
        waited_in_vain.extend([True] * (not over.wait(30)))

    monkeypatch.setattr(watchdog.Watchdog, "_read_session_states", ask)
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)

        def listen_and_silence() -> None:
            with pytest.raises(pgjq.TimeoutError):
                pgjq.Client(storage).enqueue_and_wait("q", "first", None, timeout=0.1)
            proxy.silence()

        with pytest.raises(pgjq.TimeoutError):
            call(
                storage,
                mode,
                lambda client: client.enqueue_and_wait("q", "a", None, timeout=2),
                before=listen_and_silence,
            )
        over.set()
        assert asked.is_set()
        assert waited_in_vain == []
        storage.close()
        proxy.restore()


def test_a_question_about_a_connection_that_was_closed_meanwhile_is_none(database: str) -> None:
    with psycopg.connect(database) as connection:
        lent = watchdog.WatchedConnection(connection, for_handler=False)
    asked = lent.asked
    watchdog.Watchdog(database, lambda: False, lambda: None)._judge([lent])
    assert lent.asked == asked


@MODES
def test_a_question_that_fails_is_followed_by_another(
    database: str, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, errors = watchdog.Watchdog._read_session_states, iter([RuntimeError("once")])

    def fail_once(self: watchdog.Watchdog, pids: list[int]) -> Any:
        for error in errors:
            raise error
        return ask(self, pids)

    monkeypatch.setattr(watchdog.Watchdog, "_read_session_states", fail_once)
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        with pytest.raises(pgjq.StorageUnavailableError):
            call(storage, mode, lambda client: client.enqueue("q", "a", None), before=proxy.silence)
        assert next(errors, None) is None
        storage.close()
        proxy.restore()


@MODES
def test_a_statement_that_waits_for_a_lock_is_not_cut(database: str, mode: Mode) -> None:
    storage = pgjq.PostgresStorage(database)
    with psycopg.connect(database) as holder, ThreadPoolExecutor(1) as threads:
        pgjq.Client(storage).enqueue("q", "other", None)
        pgjq.Client(storage).enqueue("q", "a", None, connection=holder)
        waiting = threads.submit(
            call, storage, mode, lambda client: client.enqueue("q", "a", None), before=lambda: None
        )
        until(lambda: asked_about(database) >= 3)
        holder.rollback()
        assert waiting.result(60).status == "queued"
    storage.close()


def test_a_long_statement_of_a_handler_is_not_cut(database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    queue = pgjq.Queue("q", storage=storage)

    def sleep(job: pgjq.Job) -> None:
        with job.transaction() as connection:
            connection.execute("select pg_sleep(3)")

    queue.execute(sleep)
    with queue:
        queue.enqueue_and_wait("a", None, timeout=60)
        assert queue.get_status("a").attempts == 1  # type: ignore[union-attr]
    storage.close()


@pytest.mark.parametrize("trouble", ["silence", "refuse"])
@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_stops_soon_whatever_the_network_does(database: str, trouble: str, *, busy: bool) -> None:
    begun, over = threading.Event(), threading.Event()
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        queue = pgjq.Queue("q", storage=storage, block_timeout=30)

        def handle(_job: pgjq.Job) -> None:
            begun.set()
            over.wait(60)

        queue.execute(handle)
        queue.on("error", lambda _error: None)
        queue.start()
        if busy:
            queue.enqueue("a", None)
            begun.wait(60)
        getattr(proxy, trouble)()
        stopping = threading.Thread(target=lambda: queue.stop(0.5))
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()
        over.set()
        proxy.restore()
        storage.close()
        until(lambda: gc.collect() >= 0 and not proxy._writers)  # What the stop left to itself ends by itself.


def asked_about(database: str) -> int:
    """Count the questions about silent sessions by the connections that were made for them."""
    with psycopg.connect(database) as connection:
        (row,) = connection.execute("select sessions from pg_stat_database where datname = current_database()")
        return row[0]


@MODES
@pytest.mark.parametrize("hosts", [1, 3])
def test_a_caller_is_told_in_its_own_time_however_long_connecting_may_take(mode: Mode, hosts: int) -> None:
    """A connection string with a long time-out, or with several hosts: each of them gets the time-out."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        port = deaf.getsockname()[1]
        several = ",".join(["127.0.0.1"] * hosts), ",".join([str(port)] * hosts)
        storage = pgjq.PostgresStorage("host={} port={} user=u dbname=d connect_timeout=600".format(*several))
        answered = threading.Thread(target=lambda: answers.append(first_call(storage, mode)), daemon=True)
        answers: list[str] = []
        answered.start()
        answered.join(30)
        storage.close()
    assert answers == ["TimeoutError"]


def first_call(storage: pgjq.PostgresStorage, mode: Mode) -> str:
    """Wait for a job on a storage that has not connected yet; return the name of the error."""

    async def call() -> None:
        async with pgjq.AsyncClient(storage) as client:
            await client.enqueue_and_wait("q", "a", None, timeout=0.5)

    try:
        if mode == "async":
            asyncio.run(call())
        pgjq.Client(storage).enqueue_and_wait("q", "a", None, timeout=0.5)
    except pgjq.PgjqError as error:
        return type(error).__name__
    return "none"
