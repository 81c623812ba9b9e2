"""SIGTERM, SIGINT, a second one, and a handler that keeps the interpreter to itself."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pytest

from pgjq import AsyncQueue, Client, Job, LeasePolicy, MemoryStorage, PostgresStorage, Queue, ValidationError
from tests.worker.conftest import Events, until

if TYPE_CHECKING:
    from collections.abc import Callable

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
        while worker.poll() is None:  # Signals that come at the same time are one.
            worker.send_signal(signal.SIGTERM)
    assert worker.returncode == 128 + signal.SIGTERM
    assert client.get_status("q", "a").state == "processing"  # type: ignore[union-attr]


TREE = textwrap.dedent(
    """
    import os, sys, threading, pgjq
    style, storage = sys.argv[2], pgjq.PostgresStorage(sys.argv[1])
    make = pgjq.AsyncQueue if style == "async" else pgjq.Queue
    queue = make("q", storage=storage, concurrency=2, grace=float(sys.argv[3]))

    @queue.execute
    def work(job):
        os.write(1, f"working {os.getpid()}\\n".encode())
        if job.payload == "deaf":
            threading.Event().wait(100)
        job.signal.wait(100)
        os.write(1, f"{job.signal.reason}\\n".encode())

    os.write(1, f"main {os.getpid()}\\n".encode())
    if style == "processes":
        pgjq.Worker(queue, concurrency=2, processes=2, grace=float(sys.argv[3])).run()
    elif style == "async":
        import asyncio
        asyncio.run(queue.run())
    else:
        queue.run()
    os.write(1, b"stopped\\n")
    """
)


class Tree:
    """A worker of some style in a process group of its own, with two jobs running in it."""

    def __init__(self, database: str, style: str, grace: float, payload: Any = None) -> None:
        with Client(PostgresStorage(database)) as client:
            client.enqueue_many("q", [("a", payload), ("b", payload)])
        self.process = subprocess.Popen(
            [sys.executable, "-c", TREE, database, style, str(grace)],
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert line(self.process).startswith("main ")
        self.workers = {int(line(self.process).removeprefix("working ")) for _ in range(2)}

    def signal_all(self, number: signal.Signals) -> None:
        """Signal every process of the group, as a terminal does on Ctrl-C."""
        os.killpg(self.process.pid, number)

    def is_alive(self) -> bool:
        """Tell whether a process of the group is left; the main one has been waited for."""
        try:
            os.killpg(self.process.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.is_alive():
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


STYLES = ["queue", "async", "processes"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("style", STYLES)
def test_one_signal_to_the_whole_process_group_is_one_for_each(
    database: str, postgres: PostgresStorage, style: str, number: signal.Signals
) -> None:
    with Tree(database, style, grace=0.1) as tree:
        tree.signal_all(number)
        assert [line(tree.process) for _ in range(3)] == ["shutdown", "shutdown", "stopped"]
        assert tree.process.wait(60) == 0
        until(lambda: not tree.is_alive())
    assert {(job.state, job.attempts) for job in Client(postgres).find_jobs("q")} == {("queued", 0)}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("style", STYLES)
def test_a_second_signal_to_the_whole_process_group_ends_all_of_it_at_once(
    database: str, style: str, number: signal.Signals
) -> None:
    with Tree(database, style, grace=1000, payload="deaf") as tree:
        while tree.process.poll() is None:
            tree.signal_all(number)
        # A supervisor whose processes have ended exits by itself, and Python resets its signal handlers on the way.
        assert tree.process.returncode in (128 + number, -number)
        until(lambda: not tree.is_alive())


@pytest.mark.parametrize("style", STYLES)
def test_a_second_signal_to_the_main_process_ends_all_of_it_at_once(database: str, style: str) -> None:
    with Tree(database, style, grace=1000, payload="deaf") as tree:
        while tree.process.poll() is None:
            tree.process.send_signal(signal.SIGTERM)
            time.sleep(0.1)
        assert tree.process.returncode == 128 + signal.SIGTERM
        until(lambda: not tree.is_alive())


def test_worker_processes_end_when_their_supervisor_is_killed(database: str) -> None:
    with Tree(database, "processes", grace=0.1) as tree:
        supervisors = {_parent(pid) for pid in tree.workers}
        assert len(supervisors) == 1
        os.kill(supervisors.pop(), signal.SIGKILL)
        assert [line(tree.process) for _ in range(2)] == ["shutdown", "shutdown"]
        assert tree.process.wait(60) == 1  # `run` raises.
        until(lambda: not tree.is_alive())


def _parent(pid: int) -> int:
    stat = Path(f"/proc/{pid}/stat").read_text()
    return int(stat.rpartition(")")[2].split()[1])


@pytest.mark.parametrize(
    "run",
    [
        lambda: Queue("q", storage=MemoryStorage()).run(),
        lambda: asyncio.run(AsyncQueue("q", storage=MemoryStorage()).run()),
    ],
)
def test_running_without_a_handler_is_an_error(run: Callable[[], None]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(ValidationError, match="no handler to run: define a task"):
        run()
    assert signal.getsignal(signal.SIGTERM) is before


def test_ctrl_c_on_the_callers_loop_stops_the_queue_and_gives_its_jobs_back(
    database: str, postgres: PostgresStorage
) -> None:
    script = textwrap.dedent(
        """
        import asyncio, sys, pgjq

        async def main():
            queue = pgjq.AsyncQueue("q", storage=pgjq.PostgresStorage(sys.argv[1]), grace=0)

            @queue.execute
            async def work(job):
                print("working", flush=True)
                await asyncio.sleep(100)

            async with queue:
                await asyncio.sleep(100)

        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("interrupted", flush=True)
        """
    )
    client = Client(postgres)
    client.enqueue("q", "a", None)
    with subprocess.Popen([sys.executable, "-c", script, database], stdout=subprocess.PIPE, text=True) as process:
        assert line(process) == "working"
        process.send_signal(signal.SIGINT)
        assert line(process) == "interrupted"
    status = client.get_status("q", "a")
    assert status is not None
    assert (status.state, status.attempts) == ("queued", 0)


def test_c_code_that_holds_the_interpreter_for_a_while_does_not_lose_the_job(postgres: PostgresStorage) -> None:
    """Nothing of Python runs meanwhile, heartbeats neither; a lease is three of them long for that."""

    def hog(job: Job) -> int:
        ctypes.PyDLL(None).usleep(1_000_000)
        return job.attempts

    queue = Queue("q", storage=postgres, lease_policy=LeasePolicy(lease=2.0, heartbeat=0.5, reap_interval=0.1))
    queue.execute(hog)
    heard = Events(queue, "completed", "stalled")
    queue.enqueue("a", None)
    with queue:
        assert [(e.name, e.result) for e in heard.wait()] == [("completed", 1)]
