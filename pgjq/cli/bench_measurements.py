"""The measurements of `pgjq bench`, on a queue of its own that is removed afterwards.

One process has a client on the main thread, and a worker with a handler that does nothing. So the figures are those of
the storage, the network, and pgjq between storage and handler, not those of many processes together. Each time is
measured with one clock, from before the call until after the awaited result.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from pgjq.cli.open_storage import kind_of
from pgjq.errors import PgjqError
from pgjq.queue import Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.client import Client

    Show = Callable[[str, int, int], None]

BATCH: Final = 1000
SAMPLES: Final = 100
START_SECONDS: Final = 60.0  # A worker that claims nothing must not block the command forever.
IDLE_SECONDS: Final = 0.005  # Between two samples, so that the worker is asleep.
LOOK_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class Figures:
    """The results. Rates are per second, latencies are milliseconds."""

    storage: str
    jobs: int
    concurrency: int
    enqueue_rate: float
    enqueue_many_rate: float
    drain_rate: float
    pickup_p50_ms: float
    pickup_p95_ms: float
    round_trip_p50_ms: float
    round_trip_p95_ms: float


def measure(client: Client, jobs: int, concurrency: int, show: Show) -> Figures:
    """Take all measurements, and remove the queue, even if interrupted."""
    with _scratch(client, concurrency) as bench:
        enqueue_rate = bench.enqueue_singly(min(SAMPLES * 4, jobs), show)
        many_rate = bench.enqueue_many(jobs, show)
        drain_rate = bench.drain(show)
        pickups = bench.pick_up(show)
        round_trips = bench.ask(show)
    return Figures(
        storage=kind_of(client.storage),
        jobs=jobs,
        concurrency=concurrency,
        enqueue_rate=enqueue_rate,
        enqueue_many_rate=many_rate,
        drain_rate=drain_rate,
        pickup_p50_ms=_percentile(pickups, 50),
        pickup_p95_ms=_percentile(pickups, 95),
        round_trip_p50_ms=_percentile(round_trips, 50),
        round_trip_p95_ms=_percentile(round_trips, 95),
    )


class _Bench:
    """A queue of its own, and a worker that records when each of its jobs starts."""

    def __init__(self, client: Client, queue: Queue) -> None:
        self._client = client
        self._queue = queue
        self._enqueued = 0
        self._completed = 0
        self._begun = self._ended = 0.0
        self._started = threading.Event()
        queue.on("completed", self._complete)
        queue.execute(self._handle)

    def enqueue_singly(self, count: int, show: Show) -> float:
        """Enqueue jobs with one call each, and return the rate."""
        begun = time.perf_counter()
        for number in range(count):
            self._client.enqueue(self._queue.name, None, number)
            show("enqueue", number + 1, count)
        self._enqueued += count
        return count / (time.perf_counter() - begun)

    def enqueue_many(self, count: int, show: Show) -> float:
        """Enqueue jobs a thousand at a time, and return the rate."""
        begun = time.perf_counter()
        for start in range(0, count, BATCH):
            end = min(start + BATCH, count)
            self._client.enqueue_many(self._queue.name, [(None, number) for number in range(start, end)])
            show("enqueue_many", end, count)
        self._enqueued += count
        return count / (time.perf_counter() - begun)

    def drain(self, show: Show) -> float:
        """Run all enqueued jobs, and return the rate from the worker's start to the last result."""
        begun = time.perf_counter()
        self._queue.start()
        while self._completed < self._enqueued:
            show("drain", self._completed, self._enqueued)
            time.sleep(LOOK_SECONDS)
        show("drain", self._completed, self._enqueued)
        return self._enqueued / (self._ended - begun)

    def pick_up(self, show: Show) -> list[float]:
        """Return the times from the call of enqueue to the start of the handler of an idle worker."""
        return [self._sample("pickup", number, self._wait_for_start, show) for number in range(SAMPLES)]

    def ask(self, show: Show) -> list[float]:
        """Return the times that `enqueue_and_wait` takes."""
        return [self._sample("round trip", number, self._wait_for_result, show) for number in range(SAMPLES)]

    def _sample(self, name: str, number: int, call: Callable[[int], float], show: Show) -> float:
        time.sleep(IDLE_SECONDS)
        begun = time.perf_counter()
        ended = call(number)
        show(name, number + 1, SAMPLES)
        return ended - begun

    def _wait_for_start(self, number: int) -> float:
        self._started.clear()
        self._client.enqueue(self._queue.name, None, number)
        if not self._started.wait(START_SECONDS):
            raise PgjqError(f"the job did not start within {START_SECONDS:g} s: see the log for what the worker says")
        return self._begun

    def _wait_for_result(self, number: int) -> float:
        self._client.enqueue_and_wait(self._queue.name, None, number)
        return time.perf_counter()

    async def _handle(self, _job: Any) -> None:
        self._begun = time.perf_counter()
        self._started.set()

    def _complete(self, _event: Any) -> None:
        self._completed += 1
        self._ended = time.perf_counter()


@contextmanager
def _scratch(client: Client, concurrency: int) -> Generator[_Bench]:
    """Yield a bench on a queue with a unique name; remove the queue and its jobs afterwards."""
    queue = Queue(f"bench-{uuid4().hex[:8]}", storage=client.storage, concurrency=concurrency)
    try:
        yield _Bench(client, queue)
    finally:
        queue.stop(grace=0)
        if client.storage.capabilities.definitions:
            client.delete_queue(queue.name)
        else:
            client.delete_many(queue.name)


def _percentile(seconds: list[float], percent: int) -> float:
    return 1000 * sorted(seconds)[len(seconds) * percent // 100]
