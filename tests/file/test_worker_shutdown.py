"""A worker stops in time while another process keeps the lock of the directory."""

from __future__ import annotations

import fcntl
import os
import threading
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pgjq import AsyncJob, Client, FileStorage, Job, Queue, StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path


@contextmanager
def locked(directory: Path) -> Generator[None]:
    """Hold the lock as another process does: a file that is opened again has a lock of its own."""
    file = os.open(directory / "journal.lock", os.O_RDWR)
    fcntl.flock(file, fcntl.LOCK_EX)
    yield
    os.close(file)


def enqueue(queue: Queue | Client, *args: str) -> None:
    with suppress(StorageError):  # The lock is kept for longer than it waits, or the storage is closed meanwhile.
        queue.enqueue(*args, "second", 2)


def handle(job: Job) -> object:
    return job.payload


async def handle_async(job: AsyncJob) -> object:
    return job.payload


@pytest.mark.parametrize("handler", [handle, handle_async])
def test_a_worker_stops_in_time_while_the_lock_is_kept(directory: Path, handler: Callable[..., object]) -> None:
    storage = FileStorage(directory)
    queue = Queue("q", storage=storage, block_timeout=30)
    queue.execute(handler)
    queue.on("error", lambda _error: None)
    queue.start()
    assert queue.enqueue_and_wait("first", 1, timeout=30) == 1
    with locked(directory):
        producer = threading.Thread(target=lambda: enqueue(queue))
        producer.start()  # It waits for the lock, and keeps other threads of this process waiting.
        stopping = threading.Thread(target=lambda: queue.stop(0.5))
        stopping.start()
        stopping.join(15)
        assert not stopping.is_alive()
    producer.join(30)
    storage.close()


def test_a_call_that_waits_while_its_storage_is_closed_leaves_no_file_open(directory: Path) -> None:
    for _ in range(20):
        storage = FileStorage(directory)
        client = Client(storage)
        client.enqueue("q", "first", 1)
        with locked(directory):
            # The first one waits for the lock of the directory, the others for the first one.
            callers = [threading.Thread(target=enqueue, args=(client, "q")) for _ in range(4)]
            for caller in callers:
                caller.start()
            storage.close()
            for caller in callers:
                caller.join(30)
    with closing(FileStorage(directory)) as storage:
        assert Client(storage).get_status("q", "first").state == "queued"
