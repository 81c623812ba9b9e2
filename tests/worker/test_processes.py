"""Several worker processes, and one that replaces those that die."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, MemoryStorage, Queue, UnsupportedError, ValidationError, Worker

if TYPE_CHECKING:
    from pgjq import PostgresStorage

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
    while any(_alive(pid) for pid in pids):
        pass


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


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
