"""What runs in a worker's process: a queue with a handler.

Its lease is short, so that the jobs of a worker that dies are back after a second. It ends when its standard input
does: then whoever started it has closed it, or is no more.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from pgjq.cli.demo.address import storage_at
from pgjq.cli.demo.assignment import Assignment
from pgjq.errors import PgjqError
from pgjq.lease import LeasePolicy
from pgjq.queue import Queue

if TYPE_CHECKING:
    from pgjq.storage.base import Storage
    from pgjq.worker.run import Job

POLICY = LeasePolicy(lease=1.0, heartbeat=0.3, reap_interval=0.2)


def make_queue(storage: Storage, assignment: Assignment) -> Queue:
    """Make the queue and say what is done with its jobs: think a little, then answer with the square."""
    queue = Queue(assignment.queue, storage=storage, worker_id=assignment.name, lease_policy=POLICY)

    @queue.execute
    def square(job: Job) -> int:
        time.sleep(assignment.pause)
        return job.payload * job.payload

    return queue


def _main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the demo, which then dismisses its workers.
    storage = storage_at(os.environ["PGJQ_URL"])
    try:
        with make_queue(storage, Assignment.read(sys.argv[1:])):
            sys.stdin.read()
    except PgjqError as error:
        sys.exit(f"a worker of the demo gave up: {error}")
    finally:
        storage.close()


if __name__ == "__main__":
    _main()
