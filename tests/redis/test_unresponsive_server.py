"""A server that takes bytes and never answers ends no wait by itself. Callers and workers end theirs in bounded time.

The driver would wait for ten minutes here, so a wait that nothing else ends fails its test.
"""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Literal

import pytest
import redis

import pgjq
from pgjq.blocking import drive
from pgjq.storage.redis import async_listener, listener
from tests.redis.proxy import RedisProxy
from tests.worker.conftest import Events, until
from tests.worker.proxy import Trap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.blocking import Mode
    from tests.redis_server import RedisServer

    Whose = Literal["own", "given"]

MODES = pytest.mark.parametrize("mode", ["sync", "async"])
CONNECTIONS = pytest.mark.parametrize("whose", ["own", "given"])
LIMIT = 30.0
LARGE = "x" * 30_000_000  # More than the buffers of two sockets hold.


@contextmanager
def storage_on(server: RedisServer | RedisProxy, whose: Whose) -> Generator[pgjq.RedisStorage]:
    url = f"{server.url}?socket_timeout=600"
    with redis.Redis.from_url(url) as client:
        storage = pgjq.RedisStorage(url) if whose == "own" else pgjq.RedisStorage(client=client)
        with closing(storage):
            yield storage
        if whose == "given":
            # A call that was given up ends on its own thread. It would return its connection to a client closed before.
            until(lambda: not any(thread.name.startswith("pgjq") for thread in threading.enumerate()))


@contextmanager
def paused(server: RedisServer) -> Generator[None]:
    server.pause()
    try:
        yield
    finally:
        server.resume()


def ends(call: Callable[[], object]) -> bool:
    """Tell whether a call returns within the limit; one that does not is left to its thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return not thread.is_alive()


class Caller:
    """Waits for the result of a job in one mode; `answer` is what came of it."""

    def __init__(self, storage: pgjq.RedisStorage, mode: Mode, *, connected: bool, pause: Callable[[], None]) -> None:
        self._storage, self._mode = storage, mode
        self._connected = connected
        self._pause = pause
        self.answer: Any = None

    def __call__(self, payload: Any = None) -> None:
        if self._mode == "async":
            asyncio.run(self._call_async(payload))
            return
        client = pgjq.Client(self._storage)
        if self._connected:
            client.enqueue("q", "first", None)
        self._pause()
        try:
            self.answer = client.enqueue_and_wait("q", "a", payload, timeout=0.5)
        except pgjq.PgjqError as error:
            self.answer = error

    async def _call_async(self, payload: Any) -> None:
        client = pgjq.AsyncClient(self._storage)
        if self._connected:
            await client.enqueue("q", "first", None)
        self._pause()
        try:
            self.answer = await client.enqueue_and_wait("q", "a", payload, timeout=0.5)
        except pgjq.PgjqError as error:
            self.answer = error
        await self._storage.operations("async").close()


@MODES
@CONNECTIONS
@pytest.mark.parametrize(
    ("connected", "payload"), [(False, None), (True, None), (True, LARGE)], ids=["connecting", "asking", "sending"]
)
def test_each_waiting_caller_times_out_at_its_own_time(
    redis_server: RedisServer, mode: Mode, whose: Whose, payload: Any, *, connected: bool
) -> None:
    with storage_on(redis_server, whose) as storage:
        caller = Caller(storage, mode, connected=connected, pause=redis_server.pause)
        try:
            assert ends(lambda: caller(payload))
        finally:
            redis_server.resume()
        assert isinstance(caller.answer, pgjq.TimeoutError)


@MODES
@CONNECTIONS
def test_a_caller_times_out_at_its_own_time_in_the_middle_of_a_reply(
    redis_server: RedisServer, mode: Mode, whose: Whose
) -> None:
    with storage_on(redis_server, "own") as near:
        pgjq.Client(near).enqueue_many("q", [("a", None), ("b", None)])  # The server knows the scripts from now on.
    trap = Trap(b"q", "torn", hold=True)
    with RedisProxy(redis_server.url, trap) as proxy:
        with storage_on(proxy, whose) as storage:
            caller = Caller(storage, mode, connected=False, pause=lambda: None)
            assert ends(caller)
            assert trap.sprung.is_set()
            proxy.cut()  # Ends the client of the caller's own, which waits on a thread.
        assert isinstance(caller.answer, pgjq.TimeoutError)


def test_one_silent_connection_is_enough_to_replace_all_idle_ones(redis_server: RedisServer) -> None:
    with RedisProxy(redis_server.url) as proxy, closing(pgjq.RedisStorage(f"{proxy.url}?socket_timeout=1")) as storage:
        client = pgjq.Client(storage)
        with ThreadPoolExecutor(3) as threads:
            with paused(redis_server):
                calls = [threads.submit(client.enqueue, "q", f"{n}", None) for n in range(3)]
                until(lambda: len(proxy._writers) == 6)  # Both ends of each connection.
            assert [call.result().status for call in calls] == ["queued"] * 3
        proxy.forget()
        with pytest.raises(pgjq.StorageUnavailableError):
            client.enqueue("q", "a", None)
        assert client.enqueue("q", "b", None).status == "queued"


@MODES
def test_a_waiter_does_not_read_over_connections_that_died_with_the_listener(
    redis_server: RedisServer, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else would end its read: the other connections wait for ten minutes here."""
    for module in (listener, async_listener):
        monkeypatch.setattr(module, "PROBE_SECONDS", 0.3)
    with RedisProxy(redis_server.url) as proxy, storage_on(proxy, "own") as far, storage_on(redis_server, "own") as own:
        near = pgjq.Queue("q", storage=own, block_timeout=0.2)
        near.execute(lambda job: job.id)
        waits = threading.Event()  # A call whose reply is lost takes ten minutes here.
        with ThreadPoolExecutor(1) as threads:
            waiting = threads.submit(wait_for_result, far, mode, waits)
            assert waits.wait(LIMIT)
            proxy.forget()
            with near:
                assert waiting.result(LIMIT) == "a"


def wait_for_result(storage: pgjq.RedisStorage, mode: Mode, waits: threading.Event) -> Any:
    """Enqueue a job and wait for its result; set `waits` when the job is enqueued."""
    if mode == "sync":
        queue = pgjq.Queue("q", storage=storage)
        queue.on("queued", lambda _: waits.set())
        return queue.enqueue_and_wait("a", None, timeout=60)

    async def call() -> Any:
        queue = pgjq.AsyncQueue("q", storage=storage)
        queue.on("queued", lambda _: waits.set())
        try:
            return await queue.enqueue_and_wait("a", None, timeout=60)
        finally:
            await storage.operations("async").close()

    return asyncio.run(call())


@MODES
@CONNECTIONS
def test_a_leader_resigns_in_bounded_time(redis_server: RedisServer, mode: Mode, whose: Whose) -> None:
    async def resign() -> None:
        operations = storage.operations(mode)
        assert await operations.elect("reaper", "me", ttl=60)
        redis_server.pause()
        with pytest.raises(pgjq.StorageUnavailableError):
            await operations.resign("reaper", "me")
        assert not await operations.leads("reaper", "me")
        redis_server.resume()
        await operations.close()
        resigned.set()

    resigned = threading.Event()
    with storage_on(redis_server, whose) as storage:
        try:
            assert ends(lambda: asyncio.run(resign()) if mode == "async" else drive(resign()))
        finally:
            redis_server.resume()
    assert resigned.is_set()


def test_a_reaper_that_stops_leaves_no_thread_that_waits_for_the_server(redis_server: RedisServer) -> None:
    election = pgjq.LeaderElection(enabled=True, lock_ttl=3.0, renewal_interval=0.1, acquire_retry_interval=0.1)
    with storage_on(redis_server, "own") as storage:
        reaper = pgjq.Reaper(storage=storage, leader_election=election)
        reaper.on("error", lambda _error: None)
        reaper.start()
        until(lambda: reaper.is_leader)
        with paused(redis_server):
            until(lambda: not reaper.is_leader)
            assert ends(reaper.stop)
            until(lambda: not any(thread.name.startswith("pgjq") for thread in threading.enumerate()))


@MODES
@CONNECTIONS
def test_a_caller_times_out_while_others_keep_waiting(redis_server: RedisServer, mode: Mode, whose: Whose) -> None:
    """They share a connection or a listener; what one gives up is not lost for the others."""
    with storage_on(redis_server, whose) as storage:
        patient = threading.Thread(target=lambda: statuses.append(enqueue(storage, mode, started.set)))
        started, statuses = threading.Event(), list[str]()
        with paused(redis_server):
            patient.start()
            assert started.wait(LIMIT)
            caller = Caller(storage, mode, connected=False, pause=lambda: None)
            assert ends(caller)
        patient.join(LIMIT)
        assert isinstance(caller.answer, pgjq.TimeoutError)
        assert statuses == ["queued"]


def enqueue(storage: pgjq.RedisStorage, mode: Mode, begin: Callable[[], None]) -> str:
    begin()
    if mode == "sync":
        return pgjq.Client(storage).enqueue("q", "patient", None).status

    async def call() -> str:
        result = await pgjq.AsyncClient(storage).enqueue("q", "patient", None)
        await storage.operations("async").close()
        return result.status

    return asyncio.run(call())


@CONNECTIONS
@pytest.mark.parametrize("trouble", ["pause", "kill"])
@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_stops_soon_whatever_the_server_does(
    redis_server: RedisServer, whose: Whose, trouble: str, *, busy: bool
) -> None:
    begun, over = threading.Event(), threading.Event()

    def handle(_job: pgjq.Job) -> None:
        begun.set()
        over.wait(60)

    with storage_on(redis_server, whose) as storage:
        queue = pgjq.Queue("q", storage=storage, block_timeout=30)
        queue.execute(handle)
        queue.on("error", lambda _error: None)
        queue.start()
        if busy:
            queue.enqueue("a", None)
            assert begun.wait(60)
        getattr(redis_server, trouble)()
        try:
            assert ends(lambda: queue.stop(0.5))
        finally:
            over.set()
            redis_server.resume() if trouble == "pause" else redis_server.start()


@CONNECTIONS
@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_a_worker_goes_on_after_a_freeze_and_runs_each_job_once(
    redis_server: RedisServer, whose: Whose, style: str
) -> None:
    runs, finish = Counter[str](), threading.Event()

    def handle(job: pgjq.Job) -> str:
        runs[job.id] += 1
        finish.wait(60)
        return job.id

    async def handle_async(job: pgjq.AsyncJob) -> str:
        runs[job.id] += 1
        await asyncio.to_thread(finish.wait, 60)
        return job.id

    with storage_on(redis_server, whose) as storage, storage_on(redis_server, "own") as near:
        policy = pgjq.LeasePolicy(lease=60, heartbeat=0.2)
        queue = pgjq.Queue("q", storage=storage, concurrency=3, block_timeout=30, lease_policy=policy)
        queue.execute(handle if style == "plain" else handle_async)
        queue.on("error", lambda _error: None)
        completed = Events(queue, "completed")
        client = pgjq.Client(near)
        client.enqueue_many("q", [(str(n), None) for n in range(3)])
        with queue:
            until(lambda: len(runs) == 3)
            with paused(redis_server):
                finish.set()
                with pytest.raises(pgjq.TimeoutError):
                    client.enqueue_and_wait("q", "given up", None, timeout=0.5)
            assert client.enqueue_and_wait("q", "probe", None, timeout=60) == "probe"
            until(lambda: client.get_queue_stats("q").completed == len(runs) >= 4)
            completed.wait(len(runs))
    assert set(runs.values()) == {1}
