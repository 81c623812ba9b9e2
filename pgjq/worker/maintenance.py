"""Maintenance by an elected worker: prune records, count statistics, warn of long queues.

Every worker is a candidate; the storage elects one, and another follows when that one is gone. Correctness does not
depend on it: two leaders at once would only repeat work. Pruning goes batch by batch; steps that read every record are
rare enough to cost at most a twentieth of the time.
"""

from __future__ import annotations

import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, cast

from pgjq.blocking import drive
from pgjq.errors import StorageError, UnsupportedError
from pgjq.worker.periodic_thread import Loop

if TYPE_CHECKING:
    import logging

    from pgjq.storage.base import Definitions, Operations, Storage
    from pgjq.worker.fault_log import Activity

ROLE = "maintenance"
INTERVAL = 12.0  # A queue that grows past its warning size is found within 15 s.
TTL = 30.0
PRUNE_INTERVAL = 120.0
BATCH = 1000
SHARE = 20  # A full pass takes at most one part in this many of the time.


class Maintenance:
    """Maintains a storage, on its own thread and dedicated connection."""

    def __init__(self, storage: Storage, worker: str, logger: logging.Logger, *, report: Activity) -> None:
        self._promises = storage.capabilities
        self._ops: Operations = storage.dedicated()
        self._worker = worker
        self._logger = logger
        self._full_at = self._prune_at = self._elect_at = -inf
        self._pruned_all = True
        self._loop = Loop("pgjq maintenance", self._step, report, end=self._leave)

    def start(self) -> None:
        """Start the thread."""
        self._loop.start()

    def stop(self) -> None:
        """End the thread, resign and close the connection."""
        self._loop.stop()
        self._leave()

    def _leave(self) -> None:
        """Resign; again on the thread itself, which may have been elected after the stop."""
        if self._promises.leader_election:
            with suppress(StorageError):
                drive(self._ops.resign(ROLE, self._worker))
        drive(self._ops.close())

    def _step(self) -> float:
        began = time.monotonic()
        if not self._leads(began):
            return INTERVAL
        full = began >= self._full_at
        if self._promises.definitions:
            self._observe(with_endings=full)
        if began >= self._prune_at or not self._pruned_all:
            self._pruned_all = drive(self._ops.prune(limit=BATCH)) < BATCH
            self._prune_at = began + max(PRUNE_INTERVAL, SHARE * (time.monotonic() - began))
        if full:
            self._full_at = began + max(INTERVAL, SHARE * (time.monotonic() - began))
        return INTERVAL if self._pruned_all else 0.0

    def _leads(self, now: float) -> bool:
        """Return whether this worker leads; renew leadership at every second step, within `TTL`."""
        if not self._promises.leader_election:
            return True
        try:
            if now < self._elect_at and drive(self._ops.leads(ROLE, self._worker)):
                return True
            leads = drive(self._ops.elect(ROLE, self._worker, ttl=TTL))
        except UnsupportedError:
            return True  # Behind a pooler no worker can lead; then every worker does the work.
        self._elect_at = now + 1.5 * INTERVAL if leads else -inf
        return leads

    def _observe(self, *, with_endings: bool) -> None:
        definitions = cast("Definitions", self._ops)
        for crossing in drive(definitions.observe(with_endings=with_endings)):
            self._logger.warning(
                "queue %s has %d jobs waiting, more than its warning_queue_size of %d",
                crossing.queue,
                crossing.count,
                crossing.size,
                extra={"queue": crossing.queue, "count": crossing.count},
            )
