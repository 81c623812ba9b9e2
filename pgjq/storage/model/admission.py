"""Admit one job to a queue: its id, the policy's slot and its time slot must be free."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pgjq.definition import inherit
from pgjq.job import LIVE, EnqueueResult
from pgjq.storage import policy_errors
from pgjq.storage.model.changes import NOTHING
from pgjq.storage.model.record import Record

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.job import JobSource, State
    from pgjq.options import Settings, Submission
    from pgjq.storage.model.jobs import Jobs


def check(jobs: Jobs, queue: str, job: Submission) -> None:
    """Raise an error for a job that its queue can never accept."""
    if job.settings.singleton_key is None and jobs.policy(queue).is_strict:
        raise policy_errors.needs_key(job.id)
    dead_letter = job.settings.options.dead_letter
    if dead_letter is not None and dead_letter not in jobs.queues:
        raise policy_errors.no_dead_letter_queue(dead_letter)


def admit(jobs: Jobs, queue: str, job: Submission, source: JobSource | None = None) -> EnqueueResult:
    """Add a job, unless its id or its slot is taken."""
    known = jobs.queues.get(queue)
    settings = inherit(job.settings, NOTHING if known is None else known.definition.options)
    taken = jobs.current(queue, job.id)
    if taken is not None and (answer := _answer_for(jobs, taken, job)) is not None:
        return answer
    keys = jobs.keys(queue)
    if keys is not None and (state := keys.policy.refusal(keys.states(settings.singleton_key))) is not None:
        return EnqueueResult("duplicate", job.id, state)
    now = jobs.now
    run_at, slot = settings.run_at or (now + timedelta(seconds=settings.delay) if settings.delay else now), None
    if settings.singleton_seconds is not None:
        slot, state = _take_slot(jobs, queue, settings, settings.singleton_seconds)
        if slot is None:
            return EnqueueResult("duplicate", job.id, state)
        if slot > now:
            run_at = max(slot, run_at)
    if taken is not None:
        jobs.change(taken, superseded=True)
    record = Record(jobs.last_seq + 1, queue, job.id, job.payload, settings, now, run_at)
    record.source, record.slot, record.task, record.headers = source, slot, job.task, job.headers
    jobs.add(record, "queued")
    return EnqueueResult("queued", job.id)


def _answer_for(jobs: Jobs, taken: Record, job: Submission) -> EnqueueResult | None:
    """Return the result for a taken id, or None if the id is free again."""
    fresh = taken.is_readable(jobs.now)
    if taken.state == "completed" and fresh:
        return EnqueueResult("completed", job.id, "completed", taken.result)
    # In strict order a failed job blocks its key whatever its age.
    final = (fresh and job.settings.on_failed == "duplicate") or jobs.policy(taken.queue).is_strict
    if taken.state in LIVE or (taken.state == "failed" and final):
        return EnqueueResult("duplicate", job.id, taken.state)
    return None


def _take_slot(
    jobs: Jobs, queue: str, settings: Settings, length: float
) -> tuple[datetime, None] | tuple[None, State | None]:
    """Find when the job's time slot begins, or the state of the job that has it.

    A cancelled job loses its slot.
    """
    state = None
    for begins in _slots(jobs.now, length, next_too=settings.singleton_next_slot):
        holder = jobs.slots.get((queue, settings.singleton_key, begins))
        if holder is None:
            return begins, None
        if holder.state == "cancelled":
            jobs.change(holder, slot=None)
            return begins, None
        state = holder.state
    return None, state


def _slots(now: datetime, length: float, *, next_too: bool) -> Iterator[datetime]:
    first = length * math.floor(now.timestamp() / length)
    yield datetime.fromtimestamp(first, UTC)
    if next_too:
        yield datetime.fromtimestamp(first + length, UTC)
