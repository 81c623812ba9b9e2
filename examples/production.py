"""Define the queue that the three workers of docker-compose.yml serve (`pgjq worker production:mail`).

This is the smallest module that a worker needs: a storage, a queue with its settings, a handler.
"""

from __future__ import annotations

import os

import pgjq

mail = pgjq.Queue(
    "mail",
    storage=pgjq.open_storage(os.environ["PGJQ_URL"]),
    worker_id=f"worker-{os.environ.get('HOSTNAME', 'here')}-{os.getpid()}",  # The name in `pgjq workers`.
    concurrency=10,
    visibility_timeout=60,  # Reapers requeue a dead worker's jobs after a minute; each claim records it.
)


@mail.execute
def send(job: pgjq.Job) -> str:
    """Return a text instead of sending a mail. The return value of a handler is the job's result."""
    return f"sent to {job.payload['to']} by {job.id}, attempt {job.attempts}"
