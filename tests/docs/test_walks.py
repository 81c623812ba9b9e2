"""The walks of docs/architecture.md: short lists of files, and calls pass through no other file."""

from __future__ import annotations

import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import Client, LeasePolicy, Queue
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Generator
    from types import FrameType

    from pgjq import PostgresStorage, RedisStorage

ROOT = Path(__file__).parents[2]
MOST = 8
# Files that run every coroutine or thread of their kind, whatever it does.
RUNNERS = {"pgjq/blocking.py", "pgjq/background.py", "pgjq/worker/engine_runner.py"}
SECTION = (ROOT / "docs/architecture.md").read_text().partition("## Walks through the code\n")[2].partition("\n## ")[0]
WALKS = {
    title: re.findall(r"^\d\. `([^`]+)`", files, re.MULTILINE)
    for title, files in re.findall(r"^\*\*(.+?)\.\*\*.*\n\n((?:\d\. .*\n(?: +.*\n)*)+)", SECTION, re.MULTILINE)
}


class Calls:
    """The files of pgjq that were called, and those on the stack of some of the calls."""

    def __init__(self, *marks: str) -> None:
        self.marks = marks
        self.files: set[str] = set()
        self.stacks: set[str] = set()
        self.found: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _arg: Any) -> None:
        if event != "call" or (path := _path(frame)) is None:
            return
        self.files.add(path)
        mark = f"{frame.f_code.co_qualname} {frame.f_locals.get('name', '')}".strip()
        if mark in self.marks:
            self.found.add(mark)
            above: FrameType | None = frame
            while above is not None:
                self.stacks |= {_path(above)} - {None}  # type: ignore[arg-type]
                above = above.f_back


def _path(frame: FrameType) -> str | None:
    path = Path(frame.f_code.co_filename)
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT / "pgjq") else None


@contextmanager
def recorded(title: str, *marks: str) -> Generator[None]:
    """Record the calls of this block, and compare them with a walk."""
    calls, before = Calls(*marks), sys.getprofile()
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        yield
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]
    assert calls.found == set(marks)
    listed = {path for path in WALKS[title] if path.endswith(".py")}
    assert calls.stacks - RUNNERS - listed == set()
    assert listed - calls.files == set()


def test_there_are_four_short_walks_through_files_that_exist() -> None:
    assert list(WALKS) == ["Enqueue", "Claim and settle", "Result to waiter", "Redis operation to socket"]
    assert {path for walk in WALKS.values() for path in walk if not (ROOT / path).is_file()} == set()
    assert all(1 < len(walk) <= MOST for walk in WALKS.values())


@pytest.fixture
def queue(postgres: PostgresStorage) -> Queue:
    queue = Queue("q", storage=postgres)
    queue.execute(handle)
    return queue


def handle(job: Any) -> Any:
    return job.payload


def test_an_enqueue_passes_through_the_listed_files(postgres: PostgresStorage) -> None:
    client = Client(postgres)
    with recorded("Enqueue", "SyncSession.fetch enqueue_job"):
        client.enqueue("q", "a", 1, priority=3)


def test_a_run_passes_through_the_listed_files(queue: Queue) -> None:
    queue.enqueue("a", 1)
    done = threading.Event()
    queue.on("completed", lambda _: done.set())
    with recorded("Claim and settle", "AsyncSession.fetch claim", "AsyncSession.fetch settle", "perform"), queue:
        assert done.wait(30)


def test_a_result_passes_through_the_listed_files(postgres: PostgresStorage) -> None:
    """The job is claimed and settled by hand: the event loop of a worker reads notifications, too."""
    client, operations = Client(postgres), postgres.operations("sync")
    with recorded("Result to waiter", "Mailbox.put", "PostgresResultWaiter._read_state"), ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.enqueue_and_wait, "q", "a", 1)
        while not (jobs := drive(operations.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))):
            assert not waiting.done()
        drive(operations.settle([Settlement(jobs[0].lease, Completed(b"1"))]))
        assert waiting.result(30) == 1


def test_an_operation_on_redis_passes_through_the_listed_files(redis_storage: RedisStorage) -> None:
    client = Client(redis_storage)
    client.enqueue("q", "first", 1)
    with recorded("Redis operation to socket", "SyncConnection.ask"):
        client.enqueue("q", "a", 1)
