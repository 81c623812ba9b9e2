"""What runs in a worker's process: claim, handle, settle, and now and then reap.

This is the plainest worker there can be, a loop over the storage's operations. Its lease is short, so that the jobs of
a worker that dies are back after a second. It ends when its standard input does: then whoever started it has closed it,
or is no more.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from typing import TYPE_CHECKING

from pgjq.blocking import drive
from pgjq.cli.demo.assignment import Assignment
from pgjq.errors import PgjqError
from pgjq.lease import LeasePolicy
from pgjq.outcome import Completed
from pgjq.serde import JsonSerde
from pgjq.storage.base import Settlement
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pgjq.storage.base import Claimed, Operations

POLICY = LeasePolicy(lease=1.0, heartbeat=0.3, reap_interval=0.2)
SERDE = JsonSerde()


class Every:
    """Tells when it is time again."""

    def __init__(self, seconds: float | None) -> None:
        self._seconds = seconds or 0.0
        self._next = time.monotonic() + self._seconds

    def is_due(self) -> bool:
        now = time.monotonic()
        due = now >= self._next
        if due:
            self._next = now + self._seconds
        return due


def square(number: int, pause: float) -> int:
    """Do the job: think a little, then answer."""
    time.sleep(pause)
    return number * number


def work(operations: Operations, assignment: Assignment) -> None:
    """Run jobs until standard input ends."""
    reaping = Every(POLICY.reap_interval)
    while not _is_dismissed():
        if reaping.is_due():
            drive(operations.reap())
        jobs = drive(
            operations.claim([assignment.queue], worker=assignment.name, limit=assignment.batch, policy=POLICY)
        )
        if jobs:
            drive(operations.settle(list(_run(operations, jobs, assignment))))
        else:
            drive(operations.wait_for_work([assignment.queue], POLICY.reap_interval))


def _run(operations: Operations, jobs: Sequence[Claimed], assignment: Assignment) -> Iterator[Settlement]:
    """Handle the jobs of a batch one after the other, and keep the leases of all of them meanwhile."""
    leases = [job.lease for job in jobs]
    beat = Every(POLICY.heartbeat)
    for job in jobs:
        if beat.is_due():
            drive(operations.heartbeat(leases, worker=assignment.name))
        answer = square(SERDE.deserialize(job.payload), assignment.pause)
        yield Settlement(job.lease, Completed(SERDE.serialize(answer)))


def _is_dismissed() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then dismisses its workers.
    storage = PostgresStorage(os.environ["PGJQ_URL"])
    try:
        work(storage.operations("blocking"), Assignment.read(sys.argv[1:]))
    except PgjqError as error:
        sys.exit(f"a worker of the demo gave up: {error}")
    finally:
        storage.close()


if __name__ == "__main__":
    _main()
