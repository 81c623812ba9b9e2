"""Conformance suites of storages and workers, and clocks that tests move. Needs pytest."""

import pytest

pytest.register_assert_rewrite("pgjq.testing.worker")  # Before its import: a failing case shows its values.

# ruff: noqa: E402
from pgjq.testing.clock import Clock, ManualClock, PostgresClock, RedisClock
from pgjq.testing.conformance import StorageConformance
from pgjq.testing.worker.conformance import WorkerConformance

__all__ = ["Clock", "ManualClock", "PostgresClock", "RedisClock", "StorageConformance", "WorkerConformance"]
