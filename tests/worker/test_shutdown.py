"""SIGTERM, SIGINT, a second one, and a handler that keeps the interpreter to itself."""

from __future__ import annotations

import ctypes
import signal
import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, Job, LeasePolicy, Queue
from tests.worker.conftest import Heard

if TYPE_CHECKING:
    from pgjq import PostgresStorage

SCRIPT = textwrap.dedent(
    """
    import sys, threading, pgjq
    queue = pgjq.Queue("q", storage=pgjq.PostgresStorage(sys.argv[1]), grace=float(sys.argv[2]))

    @queue.execute
    def work(job):
        print("working", flush=True)
        job.signal.wait(60)
        print(job.signal.reason, flush=True)
        if job.payload == "deaf":
            threading.Event().wait(60)

    queue.run()
    print("stopped", flush=True)
    """
)


def start(database: str, grace: float) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", SCRIPT, database, str(grace)], stdout=subprocess.PIPE, text=True)


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_gracefully_and_gives_the_job_back(
    database: str, postgres: PostgresStorage, number: signal.Signals
) -> None:
    client = Client(postgres)
    client.enqueue("q", "a", None)
    with start(database, grace=0.1) as worker:
        assert line(worker) == "working"
        worker.send_signal(number)
        assert line(worker) == "shutdown"
        assert line(worker) == "stopped"
    assert worker.returncode == 0
    status = client.get_status("q", "a")
    assert status is not None
    assert (status.state, status.attempts) == ("queued", 0)
    assert client.get_workers() == []


def test_a_second_signal_exits_now_and_the_job_is_taken_back_later(database: str, postgres: PostgresStorage) -> None:
    client = Client(postgres)
    client.enqueue("q", "a", "deaf")
    with start(database, grace=60) as worker:
        assert line(worker) == "working"
        worker.send_signal(signal.SIGTERM)
        while client.get_status("q", "a").state == "processing" and worker.poll() is None:  # type: ignore[union-attr]
            worker.send_signal(signal.SIGTERM)
            if worker.poll() is not None:
                break
    assert worker.returncode == 128 + signal.SIGTERM
    assert client.get_status("q", "a").state == "processing"  # type: ignore[union-attr]


def test_c_code_that_holds_the_interpreter_for_a_while_does_not_lose_the_job(postgres: PostgresStorage) -> None:
    """Nothing of Python runs meanwhile, heartbeats neither; a lease is three of them long for that."""

    def hog(job: Job) -> int:
        ctypes.PyDLL(None).usleep(1_000_000)
        return job.attempts

    queue = Queue("q", storage=postgres, lease_policy=LeasePolicy(lease=2.0, heartbeat=0.5, reap_interval=0.1))
    queue.execute(hog)
    heard = Heard(queue, "completed", "stalled")
    queue.enqueue("a", None)
    with queue:
        assert [(e.name, e.result) for e in heard.wait()] == [("completed", 1)]
