"""For tests: the contract of a storage as a suite, and clocks that can be moved. Needs pytest."""

from pgjq.testing.clock import Clock, ManualClock, PostgresClock, RedisClock
from pgjq.testing.conformance import StorageConformance

__all__ = ["Clock", "ManualClock", "PostgresClock", "RedisClock", "StorageConformance"]
