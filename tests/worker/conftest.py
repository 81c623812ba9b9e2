"""A queue on every storage that workers can run on, and the means to wait for what happens."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import Client, FileStorage, LeasePolicy, MemoryStorage, NewJob
from pgjq.blocking import drive
from pgjq.worker.fault_log import FaultLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage
    from pgjq.worker.fault_log import Activity

SHORT = LeasePolicy(lease=0.1, heartbeat=None)


@pytest.fixture
def file_storage(tmp_path: Path) -> Iterator[FileStorage]:
    """A storage in a directory."""
    storage = FileStorage(tmp_path / "jobs")
    yield storage
    storage.close()


@pytest.fixture(params=["memory", "postgres", "redis_storage", "file_storage"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """A storage by the server's clock."""
    return MemoryStorage() if request.param == "memory" else request.getfixturevalue(request.param)


class Events:
    """Collects events, and waits for them."""

    def __init__(self, queue: Any, *names: str) -> None:
        import threading

        self.events: list[Any] = []
        self._changed = threading.Condition()
        for name in names:
            queue.on(name, self._hear)

    def _hear(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> list[Any]:
        """Return the events once there are so many of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, 60), self.events
            return list(self.events)


def abandon(storage: Storage, *jobs: NewJob, policy: LeasePolicy = SHORT) -> None:
    """Enqueue jobs and claim them, as a worker does that dies the next moment."""
    Client(storage).enqueue_many("q", jobs)
    ops = storage.operations("sync")
    assert len(drive(ops.claim(["q"], worker="ghost", limit=len(jobs), policy=policy))) == len(jobs)


def until(holds: Callable[[], Any]) -> None:
    """Wait until something holds; the suite's time-out is the limit."""
    while not holds():
        time.sleep(0.005)


def unexpected() -> Activity:
    """An activity of which no error is expected."""
    return FaultLog(logging.getLogger("pgjq"), "worker", lambda error, _: pytest.fail(str(error))).activity("testing")
