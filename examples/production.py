"""The worker of docker-compose.yml: three of these run, and `pgjq worker production:mail` starts each of them.

It is the smallest module that a worker needs: a storage, a queue with its settings, a handler.
"""

from __future__ import annotations

import os

import pgjq

mail = pgjq.Queue(
    "mail",
    storage=pgjq.open_storage(os.environ["PGJQ_URL"]),
    worker_id=f"worker-{os.environ.get('HOSTNAME', 'here')}-{os.getpid()}",  # What people see in `pgjq workers`.
    concurrency=10,
    visibility_timeout=60,  # A dead worker's jobs come back after a minute. Reapers need not be told: it is recorded.
)


@mail.execute
def send(job: pgjq.Job) -> str:
    """Stand here for the real thing. What a handler returns is the job's result."""
    return f"sent to {job.payload['to']} by {job.id}, attempt {job.attempts}"
