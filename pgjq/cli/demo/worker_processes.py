"""The demo's workers, seen from outside: processes of the operating system that can be frozen, killed and dismissed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self

import click

from pgjq.cli.demo.queue import make_queue

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.cli.demo.arguments import Assignment
    from pgjq.client import Client
    from pgjq.storage.base import Storage

SECONDS = 10.0  # More than any statement or farewell takes, even on a machine that is busy with other things.
IN_FLIGHT = 0.1  # Longer than a statement that was under way when its worker was frozen.


class WorkerProcess:
    """One worker. Leaving the block dismisses it, and kills it if it does not go."""

    def __init__(self, assignment: Assignment, place: str) -> None:
        self.name = assignment.name
        command = (sys.executable, "-m", "pgjq.cli.demo.worker", *assignment.words())
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "PGJQ_URL": place})

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Make sure that the process is there."""
        if self._process.poll() is not None:
            raise click.ClickException(f"{self.name} ended by itself, with exit code {self._process.returncode}")

    @contextmanager
    def frozen(self) -> Generator[None]:
        """Keep the process from doing anything while the block lasts."""
        self._process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """`kill -9`: no farewell, no clean-up, no last word to the database."""
        self._process.kill()
        self._process.wait()

    def dismiss(self) -> None:
        """Have it finish what it is at and go."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.dismiss()


@contextmanager
def crew(assignments: list[Assignment], place: str) -> Generator[list[WorkerProcess]]:
    """Start one process for each assignment, and see all of them off."""
    with ExitStack() as stack:
        yield [stack.enter_context(WorkerProcess(assignment, place)) for assignment in assignments]


class WorkerThreads:
    """One worker on threads of this process, for a storage that no other process can reach."""

    def __init__(self, assignment: Assignment, storage: Storage) -> None:
        self.name = assignment.name
        self._queue = make_queue(storage, assignment)

    def check(self) -> None:
        """Threads of this process are there."""

    def __enter__(self) -> Self:
        self._queue.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._queue.stop()


@contextmanager
def threads(assignments: list[Assignment], storage: Storage) -> Generator[list[WorkerThreads]]:
    """Start one worker for each assignment here, and stop all of them."""
    with ExitStack() as stack:
        yield [stack.enter_context(WorkerThreads(assignment, storage)) for assignment in assignments]


def kill_while_it_holds_jobs(worker: WorkerProcess, client: Client, queue: str) -> int:
    """Kill a worker at a moment at which it holds jobs, and return how many those were.

    A worker holds jobs most of the time, but not between two batches. So it is frozen, looked at and, if its hands are
    empty, allowed to go on.
    """
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with worker.frozen():
            time.sleep(IN_FLIGHT)
            if held := count_held(worker, client, queue):
                worker.kill()
                return held
        time.sleep(IN_FLIGHT / 10)
    raise click.ClickException(f"{worker.name} never held a job for {SECONDS:g} s; give the demo more --jobs")


def count_held(worker: WorkerProcess, client: Client, queue: str) -> int:
    """Count the jobs that are a worker's, dead or alive."""
    return sum(job.worker == worker.name for job in client.find_jobs(queue, state="processing", limit=1000))
