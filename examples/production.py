"""Define the queue that the three workers of docker-compose.yml serve (`pgjq worker production:mail`).

This is the smallest module that a worker needs: a storage, a queue with its settings, a task.
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


@mail.task
def send(to: str) -> str:
    """Return a text instead of sending a mail. The return value of a task is the job's result."""
    job = pgjq.current_job()
    return f"sent to {to} by {job.id}, attempt {job.attempts}"
