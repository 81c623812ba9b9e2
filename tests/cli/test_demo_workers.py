"""The demo kills a worker while it holds jobs."""

from __future__ import annotations

import fcntl
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, cast

import pgjq
from pgjq.blocking import drive
from pgjq.cli.demo import worker_processes
from pgjq.cli.demo.worker_processes import WorkerProcess, kill_with_jobs_in_flight

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

    import pytest


class LockedWorker:
    """A worker that is frozen in the middle of an operation on its directory, the first time."""

    name = "ann"

    def __init__(self, lock: Path) -> None:
        self._lock = lock
        self.freezes = 0
        self.killed = False

    @contextmanager
    def frozen(self) -> Generator[None]:
        self.freezes += 1
        with self._lock.open("rb+") as file:
            if self.freezes == 1:
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def kill(self) -> None:
        self.killed = True


def test_a_worker_that_is_frozen_while_it_holds_the_lock_is_frozen_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_processes, "LOCKED_SECONDS", 0.2)
    with closing(pgjq.FileStorage(tmp_path / "jobs")) as storage:
        client = pgjq.Client(storage)
        client.enqueue("q", "a", 1)
        operations: Any = storage.operations("sync")
        drive(operations.claim(["q"], worker="ann", limit=1, policy=pgjq.LeasePolicy()))
        worker = LockedWorker(tmp_path / "jobs" / "journal.lock")
        assert kill_with_jobs_in_flight(cast("WorkerProcess", worker), client, "q") == 1
    assert (worker.freezes, worker.killed) == (2, True)
