"""Another process holds the lock of the directory and does not let go. Callers and workers stop waiting in time.

The storage would wait for the lock for ten minutes here, so a wait that nothing else ends fails its test.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import threading
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.storage.file import mutex
from tests.worker.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

    from pgjq.blocking import Mode

LIMIT = 30.0


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutex, "PATIENCE", 600.0)


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the lock, as a process does that has nothing to do with the storage."""
    with (directory / "journal.lock").open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def ends(call: Callable[[], object]) -> bool:
    """Tell whether a call returns within the limit; one that does not is left to its thread."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(LIMIT)
    return not thread.is_alive()


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("crowd", [0, 8])
def test_each_waiting_caller_times_out_at_its_own_time(directory: Path, mode: Mode, crowd: int) -> None:
    """Also behind callers that have no deadline: they take up all threads of the storage, and its turn."""
    with closing(pgjq.FileStorage(directory)) as storage:
        client = pgjq.Client(storage)
        client.enqueue("q", "first", None)
        caught: list[BaseException] = []

        async def ask() -> None:
            async_client = pgjq.AsyncClient(storage)
            others = [asyncio.create_task(async_client.enqueue("q", f"other {n}", None)) for n in range(crowd)]
            await asyncio.sleep(0)
            with pytest.raises(pgjq.TimeoutError) as info:
                await async_client.enqueue_and_wait("q", "a", None, timeout=0.5)
            caught.append(info.value)
            free.close()
            await asyncio.gather(*others)

        def ask_blocking() -> None:
            others = [threading.Thread(target=client.enqueue, args=("q", f"other {n}", None)) for n in range(crowd)]
            for other in others:
                other.start()
            with pytest.raises(pgjq.TimeoutError) as info:
                client.enqueue_and_wait("q", "a", None, timeout=0.5)
            caught.append(info.value)
            free.close()
            for other in others:
                other.join()

        with ExitStack() as free:
            free.enter_context(locked(directory))
            assert ends(ask_blocking if mode == "sync" else lambda: asyncio.run(ask()))
        assert f"process {os.getpid()} " in str(caught[0].__cause__) or crowd
        assert client.get_queue_stats("q").total == 1 + crowd


@pytest.mark.parametrize("busy", [False, True])
def test_a_worker_stops_soon_and_the_next_one_goes_on(directory: Path, *, busy: bool) -> None:
    begun, over = threading.Event(), threading.Event()

    def handle(_job: pgjq.Job) -> None:
        begun.set()
        over.wait(60)

    with closing(pgjq.FileStorage(directory)) as storage:
        queue = pgjq.Queue("q", storage=storage, block_timeout=30)
        queue.execute(handle)
        queue.on("error", lambda _error: None)
        queue.start()
        if busy:
            queue.enqueue("a", None)
            assert begun.wait(60)
        else:
            until((directory / "journal.lock").exists)
        with locked(directory):
            assert ends(lambda: queue.stop(0.5))
        over.set()
    with closing(pgjq.FileStorage(directory)) as storage:
        queue = pgjq.Queue("q", storage=storage, block_timeout=30)
        queue.execute(lambda job: job.id)
        with queue:
            assert queue.enqueue_and_wait("probe", None, timeout=60) == "probe"


def test_closing_the_storage_ends_waits_for_the_lock(directory: Path) -> None:
    storage = pgjq.FileStorage(directory)
    client = pgjq.Client(storage)
    client.enqueue("q", "first", None)
    begun = threading.Event()
    errors: list[Exception] = []

    def wait() -> None:
        begun.set()
        try:
            client.enqueue("q", "a", None)
        except pgjq.StorageError as error:
            errors.append(error)

    with locked(directory):
        waiting = threading.Thread(target=wait, daemon=True)
        waiting.start()
        assert begun.wait(LIMIT)
        assert ends(storage.close)
        waiting.join(LIMIT)
        assert len(errors) == 1
