"""The metric families of a storage and of a worker process."""

from __future__ import annotations

from collections import Counter
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

from pgjq.worker.measurements import BUCKETS, OTHER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pgjq.storage.metrics import Reading
    from pgjq.worker.measurements import Histogram, Measurements

STATES: Final = ("queued", "processing", "failing", "completed", "failed", "cancelled")
TASK: Final = ("queue", "task")
_BOUNDS: Final = (*map(str, BUCKETS), "+Inf")


class Names:
    """The first names of a kind keep their own label value, further ones share "other"."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def __getitem__(self, name: str) -> str:
        if name and name not in self._known:
            if len(self._known) >= self._most:
                return OTHER
            self._known.add(name)
        return name


def of_storage(reading: Reading | None, queues: Names, tasks: Names) -> Iterator[Any]:
    """Yield the metrics of a storage; only `pgjq_up` if it could not be read."""
    yield GaugeMetricFamily("pgjq_up", "Whether the storage could be read.", float(reading is not None))
    if reading is None:
        return
    jobs: Counter[tuple[str, ...]] = Counter()
    workers: Counter[tuple[str, ...]] = Counter()
    oldest: dict[tuple[str, ...], float] = {}
    for queue in reading.queues:
        name = queues[queue.queue]
        for state in STATES:
            jobs[name, state] += getattr(queue, state)
        workers[(name,)] = max(workers[(name,)], queue.workers) if name == OTHER else queue.workers
        oldest[(name,)] = max(oldest.get((name,), 0.0), queue.oldest)
    yield _gauge("pgjq_jobs", "Jobs by state.", ("queue", "state"), jobs)
    yield _gauge("pgjq_oldest_ready_seconds", "Age of the oldest job that is ready.", ("queue",), oldest)
    yield _gauge("pgjq_workers", "Workers that are alive.", ("queue",), workers)
    running = {(queue,): n for (queue, state), n in jobs.items() if state == "processing"}
    yield _gauge("pgjq_in_flight", "Jobs that workers have claimed and not settled.", ("queue",), running)
    finished: Counter[tuple[str, ...]] = Counter()
    for (queue, task, outcome), n in reading.finished.items():
        finished[queues[queue], tasks[task], outcome] += n
    yield _counter("pgjq_jobs_finished", "Jobs that have ended.", ("queue", "task", "outcome"), finished)
    yield from _of_server(reading, queues)


def _of_server(reading: Reading, queues: Names) -> Iterator[Any]:
    if reading.stalled is not None:
        stalled: Counter[tuple[str, ...]] = Counter()
        for queue, n in reading.stalled.items():
            stalled[(queues[queue],)] += n
        yield _counter("pgjq_stalled", "Runs that a reaper took back.", ("queue",), stalled)
    if reading.leaders:
        leaders = {(role,): float(leads) for role, leads in reading.leaders.items()}
        yield _gauge("pgjq_leader", "Whether a process leads in a role.", ("role",), leaders)
    if reading.oldest_snapshot is not None:
        text = "Age of the oldest snapshot, which keeps vacuum from removing dead rows."
        yield GaugeMetricFamily("pgjq_oldest_snapshot_seconds", text, reading.oldest_snapshot)
    if reading.schedule_late is not None:
        yield GaugeMetricFamily("pgjq_schedule_late_seconds", "How late the latest schedule is.", reading.schedule_late)


def of_worker(measurements: Measurements) -> Iterator[Any]:
    """Yield the metrics of a worker process."""
    series = measurements.series.copy()
    finished = {(*key, outcome): n for key, each in series.items() for outcome, n in each.finished.items()}
    yield _counter("pgjq_jobs_finished", "Jobs that have ended.", (*TASK, "outcome"), finished)
    waits = "Seconds from the enqueue to the first start."
    yield _histogram("pgjq_wait_seconds", waits, ((key, each.waits) for key, each in series.items()))
    runs = "Seconds that attempts took."
    yield _histogram("pgjq_run_seconds", runs, ((key, each.runs) for key, each in series.items()))
    yield CounterMetricFamily("pgjq_leases_lost", "Leases that this process lost.", measurements.leases_lost)
    in_flight = dict.fromkeys(((queue,) for queue, _ in series), 0) | {
        (queue,): n for queue, n in measurements.in_flight().items()
    }
    yield _gauge("pgjq_in_flight", "Jobs that this process has claimed and not settled.", ("queue",), in_flight)


def _gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Any:
    family = GaugeMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, labels: tuple[str, ...], values: Mapping[tuple[str, ...], float]) -> Any:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _histogram(name: str, text: str, values: Iterable[tuple[tuple[str, str], Histogram]]) -> Any:
    family = HistogramMetricFamily(name, text, labels=TASK)
    for key, measured in values:
        buckets = list(zip(_BOUNDS, accumulate(measured.counts), strict=True))
        family.add_metric(key, buckets, measured.total)
    return family
