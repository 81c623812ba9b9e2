"""The worker conformance suite, whole.

Subclass `WorkerConformance` in a test module of your own with a fixture `storage`: a fresh, empty one for each test,
which goes by the real time. Name its `promises`, so that only cases that apply are collected, and override `reopen`
and `source` if several processes can share the storage. Every case runs with `Queue` and with `AsyncQueue`; workers
poll so seldom that only a wake-up explains a job that runs.
"""

from __future__ import annotations

from pgjq.testing.worker.bulk import BulkCommands
from pgjq.testing.worker.delays import Delays
from pgjq.testing.worker.records import WorkerRecords


class WorkerConformance(Delays, BulkCommands, WorkerRecords):
    """Everything that users of queues, workers and clients rely on."""
