"""The demo's queue, with a handler that squares numbers.

Its lease is short, so that a killed worker's jobs run again after a second.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pgjq.lease import LeasePolicy
from pgjq.queue import Queue

if TYPE_CHECKING:
    from pgjq.cli.demo.arguments import Assignment
    from pgjq.storage.base import Storage
    from pgjq.worker.job import Job

POLICY = LeasePolicy(lease=1.0, heartbeat=0.3, reap_interval=0.2)


def make_queue(storage: Storage, assignment: Assignment) -> Queue:
    """Create the queue and its handler: sleep a little, then return the square."""
    queue = Queue(assignment.queue, storage=storage, worker_id=assignment.name, lease_policy=POLICY)

    @queue.execute
    def square(job: Job) -> int:
        time.sleep(assignment.pause)
        return job.payload * job.payload

    return queue
