"""Memory and File: jobs enqueued and drained, and how long a question takes to be answered.

Run as `python -m benchmarks.file_storage`; it needs no server. A worker of 50 coroutines in this process drains what
was enqueued before, in one call or one by one from eight threads. The round trip is from before the enqueue until the
result has been read, by a caller who subscribed before; with the worker in this process, and in another one. The file
storage syncs every operation to the disk that the temporary directory is on, whose own speed is printed first.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any

import pgjq
from pgjq.blocking import drive

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

ROUNDS = 5
JOBS = {"memory": 20_000, "file": 5_000}
SINGLES = {"memory": 5_000, "file": 1_000}
QUESTIONS = 200


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="pgjq-bench-") as place:
        print(f"one write synced: {sync_time(Path(place)) * 1000:.2f} ms")
        for kind in JOBS:
            measure(kind, Path(place))
        print(f"file, worker in another process: round trip {milliseconds(ask_across(Path(place) / 'across'))}")


def measure(kind: str, place: Path) -> None:
    together = [drained(make(kind, place / f"t{n}"), JOBS[kind], in_one_call) for n in range(ROUNDS)]
    singles = [drained(make(kind, place / f"s{n}"), SINGLES[kind], one_by_one) for n in range(ROUNDS)]
    print(f"{kind}, enqueued in one call and drained: {median(together):,.0f} jobs/s (best {max(together):,.0f})")
    print(f"{kind}, enqueued one by one and drained: {median(singles):,.0f} jobs/s (best {max(singles):,.0f})")
    storage = make(kind, place / "ask")
    with working(storage):
        print(f"{kind}, worker in this process: round trip {milliseconds(ask(storage))}")
    storage.close()


def make(kind: str, directory: Path) -> Any:
    return pgjq.MemoryStorage() if kind == "memory" else pgjq.FileStorage(directory)


def drained(storage: Any, count: int, enqueue: Callable[[pgjq.Queue, int], None]) -> float:
    """Jobs per second, from before the first enqueue until the last job has been settled."""
    queue, done = pgjq.Queue("q", storage=storage, concurrency=50), threading.Event()
    left = count

    def count_down(_: Any) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()

    queue.execute(echo)
    queue.on("completed", count_down)
    begun = time.perf_counter()
    enqueue(queue, count)
    with queue:
        done.wait()
        took = time.perf_counter() - begun
    assert pgjq.Client(storage).get_queue_stats("q").completed == count
    storage.close()
    return count / took


def in_one_call(queue: pgjq.Queue, count: int) -> None:
    queue.enqueue_many((str(n), n) for n in range(count))


def one_by_one(queue: pgjq.Queue, count: int) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda n: queue.enqueue(str(n), n), range(count)))


async def echo(job: pgjq.AsyncJob) -> Any:
    return job.payload


@contextmanager
def working(storage: Any) -> Generator[None]:
    queue = pgjq.Queue("q", storage=storage)
    queue.execute(echo)
    with queue:
        yield


def ask(storage: Any) -> list[float]:
    client = pgjq.Client(storage)
    answers = drive(storage.operations("blocking").subscribe("q"))
    times = [ask_one(client, answers, str(n)) for n in range(QUESTIONS)]
    drive(answers.close())
    return times


def ask_one(client: pgjq.Client, answers: Any, job_id: str) -> float:
    begun = time.perf_counter()
    client.enqueue("q", job_id, job_id)
    while not any(e.id == job_id and e.name == "completed" for e in drive(answers.next(10))):
        pass
    assert client.get_result("q", job_id) == job_id
    return time.perf_counter() - begun


def ask_across(directory: Path) -> list[float]:
    """The same with a worker in a process of its own, which ends with its standard input."""
    command = [sys.executable, "-m", "benchmarks.file_storage", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        storage = pgjq.FileStorage(directory)
        ask_one(pgjq.Client(storage), drive(storage.operations("blocking").subscribe("q")), "warm up")
        times = ask(storage)
        storage.close()
        assert worker.stdin
        worker.stdin.close()
    return times


def milliseconds(times: list[float]) -> str:
    return f"p50 {median(times) * 1000:.1f} ms, p90 {quantiles(times, n=10)[8] * 1000:.1f} ms"


def sync_time(place: Path) -> float:
    fd = os.open(place / "probe", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    times: list[float] = []
    for _ in range(50):
        begun = time.perf_counter()
        os.write(fd, b"x" * 300)
        os.fsync(fd)
        times.append(time.perf_counter() - begun)
    os.close(fd)
    return median(times)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with working(pgjq.FileStorage(sys.argv[1])):
            sys.stdin.read()
    else:
        main()
