"""Several worker processes, and one that replaces those that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, MemoryStorage, Queue, UnsupportedError, ValidationError, Worker
from tests.worker.conftest import until

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq import PostgresStorage

LIMIT = 30.0
SCRIPT = textwrap.dedent(
    """
    import os, sys, pgjq
    queue = pgjq.Queue("q", storage=pgjq.PostgresStorage(sys.argv[1]))
    queue.enqueue("warm up", None)  # The parent has used its storage before it forks.
    queue.cancel("warm up")

    @queue.execute
    def work(job):
        if job.payload == "die" and job.attempts == 1:
            os.kill(os.getpid(), 9)
        return os.getpid()

    policy = pgjq.LeasePolicy(lease=1, heartbeat=0.2, reap_interval=0.2)
    worker = pgjq.Worker(queue, concurrency=2, processes=2, lease_policy=policy)
    worker.start()
    print("started", flush=True)
    sys.stdin.readline()
    worker.stop()
    print("stopped", flush=True)
    """
)


def start(database: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SCRIPT, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_processes_share_the_work_and_one_that_dies_is_replaced(database: str, postgres: PostgresStorage) -> None:
    client = Client(postgres)
    with start(database) as parent:
        client.enqueue_many("q", [(f"{n}", "die" if n % 10 == 0 else None) for n in range(40)])
        while client.get_queue_stats("q").completed < 40:
            assert parent.poll() is None
        pids = {job.result for job in client.find_jobs("q", state="completed")}
        assert len(pids) >= 2
        assert parent.pid not in pids
        said, _ = parent.communicate("stop\n")
    assert (said, parent.returncode) == ("started\nstopped\n", 0)
    assert not [pid for pid in pids if _alive(pid)]


def test_workers_end_when_whoever_started_them_is_gone(database: str, postgres: PostgresStorage) -> None:
    client = Client(postgres)
    with start(database) as parent:
        client.enqueue_many("q", [(f"{n}", None) for n in range(20)])
        while client.get_queue_stats("q").completed < 20:
            assert parent.poll() is None
        pids = {job.result for job in client.find_jobs("q", state="completed")}
        os.kill(parent.pid, signal.SIGKILL)
    with killed_after(LIMIT, *pids) as late:
        until(lambda: not any(map(_alive, pids)))
    assert not late.is_set()


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


ORPHANS = textwrap.dedent(
    """
    import ctypes, os, sys, time, pgjq, pgjq.worker.supervisor
    pgjq.worker.supervisor.STOP_WITHIN = 0.1
    storage, style = pgjq.PostgresStorage(sys.argv[1]), sys.argv[2]
    queue = (pgjq.AsyncQueue if style == "blocked loop" else pgjq.Queue)("q", storage=storage)

    def work(job):
        os.write(1, f"working {os.getpid()} {os.getppid()}\\n".encode())  # One write: both workers write to one pipe.
        if style in ("patient", "hangs"):
            job.signal.wait(100)
        elif style == "holds the interpreter":
            ctypes.PyDLL(None).usleep(100_000_000)
        else:
            time.sleep(100)

    if style == "holds the interpreter":
        pgjq.worker.supervisor.LATE = 0.5

    async def block_the_loop(job):
        work(job)

    queue.execute(block_the_loop if style == "blocked loop" else work)
    queue.on("error", lambda error: print(f"error {error}", flush=True))
    worker = pgjq.Worker(queue, concurrency=1, processes=2, grace=0.1)
    if style == "hangs":
        worker.accompany(lambda service: lambda: time.sleep(100))  # At the end of each worker's stop.
    worker.start()
    sys.stdin.readline()
    worker.stop()
    print("stopped", flush=True)
    """
)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("style", ["patient", "deaf", "blocked loop", "holds the interpreter"])
def test_a_supervisor_that_ends_takes_its_workers_along_and_is_missed(
    database: str, postgres: PostgresStorage, style: str, number: signal.Signals
) -> None:
    Client(postgres).enqueue_many("q", [("a", None), ("b", None)])
    script = [sys.executable, "-c", ORPHANS, database, style]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = [parent.stdout.readline().split() for _ in range(2)]
        workers, (supervisor,) = {int(pid) for _, pid, _ in said}, {int(pid) for _, _, pid in said}
        os.kill(supervisor, number)
        with killed_after(LIMIT, parent.pid):
            assert f"(process {supervisor}) has ended, and its workers stop" in parent.stdout.readline()
        with killed_after(LIMIT, parent.pid, *workers) as late:
            rest, _ = parent.communicate("stop\n")
    assert not late.is_set()
    assert (rest, parent.returncode) == ("stopped\n", 0)
    until(lambda: not any(map(_alive, workers)))


@pytest.mark.parametrize("style", ["patient", "deaf", "blocked loop", "hangs"])
def test_workers_end_by_themselves_when_their_supervisor_and_its_parent_are_killed(
    database: str, postgres: PostgresStorage, style: str
) -> None:
    Client(postgres).enqueue_many("q", [("a", None), ("b", None)])
    script = [sys.executable, "-c", ORPHANS, database, style]
    with subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        said = [parent.stdout.readline().split() for _ in range(2)]
        workers, (supervisor,) = {int(pid) for _, pid, _ in said}, {int(pid) for _, _, pid in said}
        for process in (parent.pid, supervisor):
            os.kill(process, signal.SIGSTOP)  # Neither notices the end of the other.
        for process in (supervisor, parent.pid):
            os.kill(process, signal.SIGKILL)
        with killed_after(LIMIT, *workers) as late:
            until(lambda: not any(map(_alive, workers)))
    assert not late.is_set()


@contextmanager
def killed_after(seconds: float, *processes: int) -> Generator[threading.Event]:
    """Kill processes after a time, so that a test that waits for their end goes on; the event tells it."""
    late = threading.Event()

    def kill() -> None:
        late.set()
        for process in processes:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)

    timer = threading.Timer(seconds, kill)
    timer.start()
    try:
        yield late
    finally:
        timer.cancel()


def test_memory_cannot_be_shared_among_processes() -> None:
    queue = Queue("q", storage=MemoryStorage())
    queue.execute(lambda job: job.id)
    with pytest.raises(UnsupportedError, match="one process"):
        Worker(queue, processes=2)


@pytest.mark.parametrize("processes", [0, -1, 1.5, "2"])
def test_a_number_of_processes_that_cannot_be_is_refused(processes: object) -> None:
    queue = Queue("q", storage=MemoryStorage())
    queue.execute(lambda job: job.id)
    with pytest.raises(ValidationError, match="processes"):
        Worker(queue, processes=processes)  # type: ignore[arg-type]
