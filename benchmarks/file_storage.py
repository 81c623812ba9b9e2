"""Memory and File: jobs enqueued and drained, and how long a question takes to be answered.

Run as `python -m benchmarks.file_storage`; it needs no server. A worker of 50 coroutines in this process drains what
was enqueued before, in one call or one by one from eight threads. Beside jobs per second stands the processor's time
for each, which neighbours on the machine change less. The round trip is `enqueue_and_wait`, with the worker in this
process, and in another one. The file storage syncs every operation to the disk that the temporary directory is on,
whose own speed is printed first.
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
    for way, counts in ((in_one_call, JOBS), (one_by_one, SINGLES)):
        runs = [drained(make(kind, place / f"{way.__name__}-{n}"), counts[kind], way) for n in range(ROUNDS)]
        rates, costs = [rate for rate, _ in runs], [cost for _, cost in runs]
        print(
            f"{kind}, enqueued {way.__name__.replace('_', ' ')} and drained: {median(rates):,.0f} jobs/s"
            f" (best {max(rates):,.0f}), {min(costs) * 1e6:.0f} µs of processor each"
        )
    storage = make(kind, place / "ask")
    with working(storage):
        print(f"{kind}, worker in this process: round trip {milliseconds(ask(storage))}")
    storage.close()


def make(kind: str, directory: Path) -> Any:
    return pgjq.MemoryStorage() if kind == "memory" else pgjq.FileStorage(directory)


def drained(storage: Any, count: int, enqueue: Callable[[pgjq.Queue, int], None]) -> tuple[float, float]:
    """Jobs per second and processor seconds per job, from the first enqueue until the last job has been settled."""
    queue, done = pgjq.Queue("q", storage=storage, concurrency=50), threading.Event()
    left = count

    @queue.execute
    async def count_down(job: pgjq.AsyncJob) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            done.set()
        return job.payload

    begun, busy = time.perf_counter(), time.process_time()
    enqueue(queue, count)
    with queue:
        done.wait()
    took, worked = time.perf_counter() - begun, time.process_time() - busy
    assert pgjq.Client(storage).get_queue_stats("q").completed == count
    storage.close()
    return count / took, worked / count


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
    return [ask_one(client, str(n)) for n in range(QUESTIONS)]


def ask_one(client: pgjq.Client, job_id: str) -> float:
    begun = time.perf_counter()
    assert client.enqueue_and_wait("q", job_id, job_id) == job_id
    return time.perf_counter() - begun


def ask_across(directory: Path) -> list[float]:
    """The same with a worker in a process of its own, which ends with its standard input."""
    command = [sys.executable, "-m", "benchmarks.file_storage", str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as worker:
        storage = pgjq.FileStorage(directory)
        ask_one(pgjq.Client(storage), "warm up")
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
