"""Metrics for Prometheus, of a storage and of workers. Needs the extra `prometheus`.

* `Collector(storage)` reads the storage: one exporter serves all, with any number of workers or none. `pgjq metrics`
  serves it.
* `instrument(queue_or_worker)` measures this process's runs. `pgjq worker --metrics-port` serves that.

Label values are bounded: the first queues and tasks keep their names, further ones are "other".
"""

from __future__ import annotations

import logging
import threading
import time
from math import inf
from typing import TYPE_CHECKING, Any, Final

from pgjq.blocking import drive
from pgjq.errors import MissingExtraError, PgjqError, StorageError
from pgjq.generic_metrics import reader_of
from pgjq.options import check_int, check_seconds
from pgjq.worker.measurements import Measurements

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pgjq.queue import AsyncQueue, Queue, Worker
    from pgjq.storage.base import Storage
    from pgjq.storage.metrics import Reading

__all__ = ["Collector", "WorkerCollector", "instrument"]

logger: Final = logging.getLogger("pgjq")


class Collector:
    """Metrics of a storage, for a registry of prometheus_client.

    A reading is kept for `max_age` seconds, however many servers scrape. `max_queues` and `max_tasks` bound the label
    values; further queues and tasks are counted as "other". While the storage cannot be read, `pgjq_up` is 0 and the
    other metrics are missing. Thread-safe.
    """

    def __init__(self, storage: Storage, *, max_age: float = 10.0, max_queues: int = 100, max_tasks: int = 100) -> None:
        check_installed()
        from pgjq.prometheus.families import Names

        self._reader = reader_of(storage)
        self._max_age = check_seconds("max_age", max_age, at_least=0)
        self._queues = Names(check_int("max_queues", max_queues, 1))
        self._tasks = Names(check_int("max_tasks", max_tasks, 1))
        self._lock = threading.Lock()
        self._reading: Reading | None = None
        self._read_at = -inf

    def describe(self) -> Iterable[Any]:
        """Describe nothing, so that a registry does not read the storage when this is registered."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Read the storage, unless the last reading is young enough, and yield the metrics."""
        from pgjq.prometheus.families import of_storage

        with self._lock:
            reading = self._read()
            yield from of_storage(reading, self._queues, self._tasks)

    def _read(self) -> Reading | None:
        if time.monotonic() - self._read_at >= self._max_age:
            try:
                self._reading = drive(self._reader.read())
            except StorageError as error:
                self._reading = None
                logger.error("metrics not read", exc_info=error, extra={"error": str(error)})  # noqa: TRY400
            self._read_at = time.monotonic()
        return self._reading


class WorkerCollector:
    """Metrics of the runs in this process, for a registry of prometheus_client."""

    def __init__(self, measurements: Measurements) -> None:
        self._measurements = measurements

    def describe(self) -> Iterable[Any]:
        """Describe nothing: there may be no runs yet."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield the metrics."""
        from pgjq.prometheus.families import of_worker

        return of_worker(self._measurements)


def instrument(*targets: Queue | AsyncQueue | Worker, registry: Any = None) -> WorkerCollector:
    """Measure the runs of queues or workers in this process; call it before they start.

    Registers the metrics in `registry`, by default the registry of prometheus_client that all its servers show.
    """
    check_installed()
    from prometheus_client import REGISTRY

    measurements = Measurements()
    for target in targets:
        if target.measurements is not None:
            raise PgjqError(f"{target!r} is measured already")
        target.measurements = measurements
    collector = WorkerCollector(measurements)
    (REGISTRY if registry is None else registry).register(collector)
    return collector


def exposition(*collectors: Collector | WorkerCollector) -> tuple[str, bytes]:
    """Return the content type and text of a scrape of these metrics and of this process."""
    check_installed()
    from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, ProcessCollector, generate_latest

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    for collector in collectors:
        registry.register(collector)  # pyright: ignore[reportArgumentType]
    return CONTENT_TYPE_LATEST, generate_latest(registry)


def check_installed() -> None:
    """Raise MissingExtraError without prometheus_client."""
    try:
        import prometheus_client
    except ImportError as error:
        raise MissingExtraError("prometheus", "metrics for Prometheus") from error
    del prometheus_client
