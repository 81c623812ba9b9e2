"""Background threads: an unexpected exception is logged, the thread goes on, and its health can be asked for."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import AsyncQueue, Client, FileStorage, Job, PostgresStorage, Queue, RedisStorage
from pgjq.background import BackgroundThread, Health, health
from pgjq.storage.file.wakeup import WakeupPipe
from pgjq.storage.postgres.listener import Listener
from pgjq.storage.redis.subscribers import Subscribers
from pgjq.worker.periodic_thread import Loop
from tests.worker.conftest import until

if TYPE_CHECKING:
    from pathlib import Path

    from pgjq.storage.base import Storage


OF_THE_STORAGE = {"pgjq listener", "pgjq wakeup", "pgjq watchdog"}


class Trap:
    """Replaces a method by one that raises once, as a defect in it would."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: BaseException) -> None:
        self.sprung = threading.Event()
        method, sprung = getattr(owner, name), self.sprung

        def trapped(*args: Any) -> Any:
            if not sprung.is_set():
                sprung.set()
                raise error
            return method(*args)

        monkeypatch.setattr(owner, name, trapped)


def named(name: str) -> list[Health]:
    return [found for found in health() if found.name == name]


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, bool]]:
    records = [record for record in caplog.records if record.name == "pgjq"]
    return [(record.getMessage(), record.exc_info is not None) for record in records]


def echo(job: Job) -> Any:
    return job.payload


async def echo_async(job: Any) -> Any:
    return job.payload


@pytest.mark.parametrize("error", [RuntimeError("a defect"), SystemExit(3)], ids=["exception", "exit"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_listener_that_fails_is_logged_and_listens_again(
    postgres: PostgresStorage,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
    mode: str,
) -> None:
    trap = Trap(monkeypatch, Listener, "_listen", error)
    if mode == "sync":
        queue = Queue("q", storage=postgres, block_timeout=30)
        queue.execute(echo)
        with queue:
            assert [queue.enqueue_and_wait(str(n), n) for n in range(3)] == [0, 1, 2]
            (found,) = named("pgjq listener")
    else:

        async def serve() -> Health:
            queue = AsyncQueue("q", storage=postgres, block_timeout=30)
            queue.execute(echo_async)
            async with queue:
                assert [await queue.enqueue_and_wait(str(n), n) for n in range(3)] == [0, 1, 2]
                (found,) = named("pgjq listener")
            await postgres.operations("async").close()
            return found

        found = asyncio.run(serve())
    assert trap.sprung.is_set()
    assert (found.alive, found.last_error) == (True, f"{type(error).__name__}: {error}")
    assert logged(caplog) == [("background thread failed, starting it again: pgjq listener", True)]
    postgres.close()
    assert named("pgjq listener") == []


def test_a_file_storages_thread_that_fails_is_logged_and_goes_on(
    file_storage: FileStorage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    trap = Trap(monkeypatch, WakeupPipe, "_listen", RuntimeError("a defect"))
    file_storage.listen()
    assert trap.sprung.wait(60)
    far = FileStorage(tmp_path / "jobs")
    queue = Queue("q", storage=file_storage, block_timeout=30)
    queue.execute(echo)
    with queue, Client(far) as client:
        assert client.enqueue_and_wait("q", "a", 1) == 1
    far.close()
    assert logged(caplog)[0] == ("background thread failed, starting it again: pgjq wakeup", True)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_redis_listener_that_fails_is_logged_and_listens_again(
    redis_storage: RedisStorage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    trap = Trap(monkeypatch, Subscribers, "is_gone", RuntimeError("a defect"))
    if mode == "sync":
        queue = Queue("q", storage=redis_storage, block_timeout=30)
        queue.execute(echo)
        with queue:
            assert [queue.enqueue_and_wait(str(n), n) for n in range(3)] == [0, 1, 2]
    else:

        async def serve() -> None:
            queue = AsyncQueue("q", storage=redis_storage, block_timeout=30)
            queue.execute(echo_async)
            async with queue:
                assert [await queue.enqueue_and_wait(str(n), n) for n in range(3)] == [0, 1, 2]
            await redis_storage.operations("async").close()

        asyncio.run(serve())
    assert trap.sprung.is_set()
    assert logged(caplog) == [("background thread failed, starting it again: pgjq listener", True)]


def test_a_worker_tells_the_health_of_its_threads(storage: Storage) -> None:
    queue = Queue("q", storage=storage, block_timeout=30)
    queue.execute(echo)
    with queue:
        assert queue.enqueue_and_wait("a", 1) == 1
        found = {one.name: one for one in health()}
        assert {"pgjq worker", "pgjq heartbeat", "pgjq lease watch", "pgjq reaper", "pgjq maintenance"} <= found.keys()
        assert all(one.alive and one.last_error is None for one in found.values())
        before = found["pgjq heartbeat"].last_activity
        until(lambda: named("pgjq runner 0"))
        assert before > 0
    until(lambda: not [one for one in health() if one.name in found.keys() - OF_THE_STORAGE])


def test_a_loop_whose_report_fails_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    steps = threading.Semaphore(0)

    def step() -> float:
        steps.release()
        raise ValueError("the step")

    def report(_error: Exception) -> None:
        raise RuntimeError("the report")

    loop = Loop("pgjq example", step, report)
    loop.start()
    for _ in range(3):
        assert steps.acquire(timeout=60)
        loop.run_now()
    loop.stop()
    assert logged(caplog) == [("background thread failed, starting it again: pgjq example", True)] * len(logged(caplog))
    assert named("pgjq example") == []


@pytest.mark.parametrize("errors", [["same"] * 5, ["one", "two", "one", "two", "one"]], ids=["same", "different"])
def test_an_error_that_comes_again_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, errors: list[str]
) -> None:
    monkeypatch.setattr("pgjq.background.PAUSE_SECONDS", 0)
    left = list(errors)

    def body() -> None:
        if left:
            raise RuntimeError(left.pop())

    thread = BackgroundThread("pgjq example", body)
    thread.start()
    thread.join()
    assert len(logged(caplog)) == (1 if len(set(errors)) == 1 else 5)


def test_a_forked_child_has_no_background_threads() -> None:
    thread = BackgroundThread("pgjq example", (over := threading.Event()).wait)
    thread.start()
    pid = os.fork()
    if pid == 0:
        os._exit(len(health()))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert len(named("pgjq example")) == 1
    over.set()
    thread.join()
