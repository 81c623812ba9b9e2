"""The demo's workers: processes that the demo can freeze, kill and stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Self

import click

from pgjq.cli.demo.queue import make_queue
from pgjq.deadline import Deadline, bounded
from pgjq.errors import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.cli.demo.arguments import Assignment
    from pgjq.client import Client
    from pgjq.storage.base import Storage

SECONDS = 10.0  # More than any statement or shutdown takes, even on a busy machine.
LOCKED_SECONDS = 2.0
IN_FLIGHT = 0.1  # Longer than a statement that was in progress when its worker was frozen.


class WorkerProcess:
    """One worker process. Leaving the block stops it, and kills it if it does not end."""

    def __init__(self, assignment: Assignment, place: str) -> None:
        self.name = assignment.name
        command = (sys.executable, "-m", "pgjq.cli.demo.worker", *assignment.words())
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PGJQ_URL": place})

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raise an error unless the process runs."""
        if self._process.poll() is not None:
            raise click.ClickException(f"{self.name} ended by itself, with exit code {self._process.returncode}")

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Freeze the process during the block."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """Send `kill -9`: the worker cannot clean up or write to the database."""
        self._process.kill()
        self._process.wait()

    def finish_and_stop(self) -> None:
        """Let the worker finish its jobs and stop."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.finish_and_stop()


@contextmanager
def started_workers(assignments: list[Assignment], place: str) -> Generator[list[WorkerProcess]]:
    """Start one process per assignment, and stop all of them afterwards."""
    with ExitStack() as stack:
        yield [stack.enter_context(WorkerProcess(assignment, place)) for assignment in assignments]


class WorkerThreads:
    """One worker on threads of this process, for a storage that other processes cannot open."""

    def __init__(self, assignment: Assignment, storage: Storage) -> None:
        self.name = assignment.name
        self._queue = make_queue(storage, assignment)

    def check(self) -> None:
        """Do nothing: threads live as long as this process."""

    def __enter__(self) -> Self:
        self._queue.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.stop()


@contextmanager
def threads(assignments: list[Assignment], storage: Storage) -> Generator[list[WorkerThreads]]:
    """Start one worker per assignment in this process, and stop all of them afterwards."""
    with ExitStack() as stack:
        yield [stack.enter_context(WorkerThreads(assignment, storage)) for assignment in assignments]


def kill_with_jobs_in_flight(worker: WorkerProcess, client: Client, queue: str) -> int:
    """Kill a worker while it has in-flight runs, and return their number.

    A worker has in-flight runs most of the time, but not between two batches. So this freezes the worker, counts, and
    lets it continue if it has none.
    """
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        # In a directory the worker may be frozen while it holds the lock: then it continues, and is frozen again.
        with worker.frozen(), suppress(StorageUnavailableError), bounded(Deadline(LOCKED_SECONDS)):
            time.sleep(IN_FLIGHT)
            if held := count_held(worker, client, queue):
                worker.kill()
                return held
        time.sleep(IN_FLIGHT / 10)
    raise click.ClickException(f"{worker.name} never held a job for {SECONDS:g} s; give the demo more --jobs")


def count_held(worker: WorkerProcess, client: Client, queue: str) -> int:
    """Count the in-flight runs of a worker, dead or alive."""
    return sum(job.worker == worker.name for job in client.find_jobs(queue, state="processing", limit=1000))
