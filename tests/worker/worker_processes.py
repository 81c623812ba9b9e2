"""Worker processes that a test may kill, stop and cut off.

A parent process has everything imported and forks a worker for each line that it reads, so that fifty of them cost
little more than one. A worker is an ordinary one: a `Queue` with a handler, and `run()`.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg

from pgjq import Job, LeasePolicy, PgjqError, PostgresStorage, Queue, open_storage

if TYPE_CHECKING:
    from collections.abc import Callable

ROOT = Path(__file__).parents[2]
POLICY = LeasePolicy(lease=0.6, heartbeat=0.15, reap_interval=0.15)
NOTE = "insert into effect (id, lease) values (%s, %s)"


def transact(job: Job) -> None:
    with job.transaction() as connection:
        connection.execute(NOTE, [job.id, job.lease])
        job.result = job.lease


def linger(job: Job) -> None:
    """Stay inside the block while another session holds this advisory lock; report how leaving it ended."""
    try:
        with job.transaction() as connection:
            connection.execute(NOTE, [job.id, job.lease])
            if job.attempts == 1:
                connection.execute("select from account for update")
            connection.execute("select pg_advisory_xact_lock_shared(%s)", [job.payload["lock"]])
    except PgjqError as error:
        with psycopg.connect(job.payload["conninfo"]) as connection:
            connection.execute(
                "insert into told (id, lease, error) values (%s, %s, %s)", [job.id, job.lease, type(error).__name__]
            )
        raise


HANDLERS: dict[str, Callable[..., Any]] = {
    "transact": transact,
    "linger": linger,
}


class ForkedProcesses:
    """The parent process of a module, and the workers that it forked: each calls that module's `serve`."""

    def __init__(self, module: str = "tests.worker.worker_processes") -> None:
        self.pids: set[int] = set()
        self._complaints = tempfile.TemporaryFile("w+")  # noqa: SIM115  (closed with the processes)
        self._parent = subprocess.Popen(
            [sys.executable, "-m", module],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            text=True,
        )

    def start(self, conninfo: str, handler: str, queue: str = "q") -> int:
        """Start a worker and return its process id."""
        return self.fork(conninfo, handler, queue)

    def fork(self, *arguments: Any) -> int:
        """Start a process that serves with these arguments, and return its id."""
        assert self._parent.stdin
        assert self._parent.stdout
        print(json.dumps(arguments), file=self._parent.stdin, flush=True)
        pid = int(self._parent.stdout.readline())
        self.pids.add(pid)
        return pid

    def kill(self, pid: int) -> None:
        """End a worker without a word; it may have ended before, but its number is still its own."""
        os.kill(pid, signal.SIGKILL)
        self.pids.discard(pid)

    def complaints(self) -> str:
        """Return what workers printed of uncaught exceptions: of threads, and of tasks that were never awaited."""
        self._complaints.seek(0)
        return self._complaints.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for pid in tuple(self.pids):
            self.kill(pid)
        with self._parent as parent:
            assert parent.stdin
            parent.stdin.close()
        self._complaints.close()


def serve(conninfo: str, handler: str, name: str) -> None:
    """Be a worker until a signal comes."""
    for noise in ("pgjq", "psycopg"):
        logging.getLogger(noise).setLevel(logging.CRITICAL)
    storage = open_storage(conninfo) if "://" in conninfo else PostgresStorage(conninfo)
    queue = Queue(name, storage=storage, concurrency=4, lease_policy=POLICY, block_timeout=0.5)
    queue.on("error", lambda _error: None)  # Errors are what these tests make.
    queue.execute(HANDLERS[handler])
    queue.run()


def main(serve: Callable[..., None]) -> None:
    """Fork a process for each line, which serves with the arguments in it.

    Ended processes are not waited for: as long as this lives, no other process gets their numbers, so that killing one
    of them by its number twice hits no other process.
    """
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            serve(*json.loads(line))
            os._exit(0)
        print(pid, flush=True)  # noqa: T201


if __name__ == "__main__":
    main(serve)
