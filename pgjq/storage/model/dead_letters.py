"""Dead letters: copies of failed jobs in their dead letter queues."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pgjq.job import JobSource
from pgjq.options import Submission
from pgjq.storage.model.admission import admit

if TYPE_CHECKING:
    from pgjq.options import JobOptions
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.record import Record


def move_to_dead_letter(jobs: Jobs, record: Record) -> None:
    """Copy a failed job to its dead letter queue, if it has one; a policy there may refuse it."""
    settings, queue = record.settings, record.settings.options.dead_letter
    if queue is None:
        return
    key = settings.singleton_key
    if key is None and jobs.policy(queue).is_strict:
        key = record.id
    kept = replace(
        settings,
        options=dead_letter_options(settings.options),
        max_attempts=record.max_attempts,
        singleton_key=key,
        run_at=None,
        delay=0.0,
        on_failed="enqueue",
        singleton_seconds=None,
    )
    source = JobSource(record.queue, record.id, record.attempts, record.error)
    admit(jobs, queue, Submission(uuid4().hex, record.payload, kept, record.task, record.headers), source)


def dead_letter_options(options: JobOptions) -> JobOptions:
    """Return the options that a job keeps in another queue.

    That queue defines the deadlines of an attempt and the dead letter queue.
    """
    return replace(options, dead_letter=None, expire_in_seconds=None, heartbeat_seconds=None)
