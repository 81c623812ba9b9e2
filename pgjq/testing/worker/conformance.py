"""The complete worker conformance suite.

Subclass `WorkerConformance` in your test module with a fixture `storage`: a fresh, empty one for each test, on the real
clock. Name its `capabilities`, so that pytest collects only cases that apply, and override `reopen` and `source` if
several processes can share the storage. Every case runs with `Queue` and with `AsyncQueue`; workers poll so rarely that
only a wake-up explains a job that runs.
"""

from __future__ import annotations

from pgjq.testing.worker.attempts import RunHistory
from pgjq.testing.worker.bulk_commands import BulkCommands
from pgjq.testing.worker.cancelling import Cancelling
from pgjq.testing.worker.delays import Delays
from pgjq.testing.worker.endings import Endings
from pgjq.testing.worker.events import Events
from pgjq.testing.worker.fairness import Fairness
from pgjq.testing.worker.handler_context import HandlerContext
from pgjq.testing.worker.leases import Leases
from pgjq.testing.worker.lifecycle import Lifecycle
from pgjq.testing.worker.policies import BlockedKeys
from pgjq.testing.worker.request_response import RequestResponse
from pgjq.testing.worker.retries import Retries
from pgjq.testing.worker.waking import Redefining, Waking
from pgjq.testing.worker.worker_records import WorkerRecords


class WorkerConformance(
    Delays,
    Retries,
    Waking,
    Redefining,
    BlockedKeys,
    Fairness,
    BulkCommands,
    Endings,
    Cancelling,
    Leases,
    RunHistory,
    RequestResponse,
    Events,
    Lifecycle,
    HandlerContext,
    WorkerRecords,
):
    """Everything that users of queues, workers and clients rely on."""
