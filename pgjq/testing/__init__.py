"""For tests: the contracts of storages and workers as suites, and clocks that can be moved. Needs pytest."""

from pgjq.testing.clock import Clock, ManualClock, PostgresClock, RedisClock
from pgjq.testing.conformance import StorageConformance
from pgjq.testing.worker.conformance import WorkerConformance

__all__ = ["Clock", "ManualClock", "PostgresClock", "RedisClock", "StorageConformance", "WorkerConformance"]
