"""What callers do with jobs from outside a run: enqueue, cancel, retry, delete, prune."""

from __future__ import annotations

from datetime import timedelta
from itertools import islice
from typing import TYPE_CHECKING

from pgjq.job import LIVE, CancelResult, EnqueueResult
from pgjq.storage.model.answers import status_of
from pgjq.storage.model.record import Record
from pgjq.storage.model.runs import end

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import JobStatus
    from pgjq.options import Submission
    from pgjq.storage.model.jobs import Jobs


def enqueue(jobs: Jobs, queue: str, submissions: Sequence[Submission]) -> list[EnqueueResult]:
    """Add jobs whose ids are free."""
    return [_enqueue(jobs, queue, job) for job in submissions]


def _enqueue(jobs: Jobs, queue: str, job: Submission) -> EnqueueResult:
    taken = jobs.current(queue, job.id)
    if taken is not None:
        fresh = taken.is_readable(jobs.now)
        if taken.state == "completed" and fresh:
            return EnqueueResult("completed", job.id, "completed", taken.result)
        if taken.state in LIVE or (taken.state == "failed" and fresh and job.settings.on_failed == "duplicate"):
            return EnqueueResult("duplicate", job.id, taken.state)
        jobs.change(taken, superseded=True)
    settings, now = job.settings, jobs.now
    run_at = settings.run_at or (now + timedelta(seconds=settings.delay) if settings.delay else now)
    jobs.add(Record(jobs.last_seq + 1, queue, job.id, job.payload, settings, now, run_at), "queued")
    return EnqueueResult("queued", job.id)


def cancel(jobs: Jobs, queue: str, job_id: str, *, active: bool) -> CancelResult:
    """Withdraw a job that is not running; with `active`, ask a running one to end."""
    record = jobs.current(queue, job_id)
    if record is None:
        return CancelResult("not_found")
    if record.state == "processing":
        if active and not record.cancel_requested:
            jobs.change(record, cancel_requested=True)
        return CancelResult("processing")
    if record.state in LIVE:
        end(jobs, record, "cancelled")
    return CancelResult(record.state)  # pyright: ignore[reportArgumentType]  (one of those in which a job ends)


def retry(jobs: Jobs, queue: str, job_id: str) -> JobStatus | None:
    """Put a failed or cancelled job back with all its attempts."""
    record = jobs.current(queue, job_id)
    if record is not None and record.state in ("failed", "cancelled"):
        jobs.change(
            record,
            "queued",
            state="queued",
            run_at=jobs.now,
            attempts=0,
            stalled=0,
            stalled_on=(),
            cancel_requested=False,
            worker=None,
            started_at=None,
            finished_at=None,
            error=None,
        )
    return None if record is None else status_of(record, jobs.now)


def delete(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> int:
    """Forget jobs that are not running, and their ids."""
    found = [jobs.current(queue, job_id) for job_id in set(job_ids)]
    doomed = [r for r in found if r is not None and r.state != "processing"]
    for record in doomed:
        jobs.forget(record)
    return len(doomed)


def prune(jobs: Jobs, limit: int) -> int:
    """Remove records whose time has passed."""
    doomed = list(islice((r for r in jobs.records.values() if _is_prunable(r, jobs.now)), limit))
    for record in doomed:
        jobs.forget(record)
    return len(doomed)


def _is_prunable(record: Record, now: datetime) -> bool:
    """A record stays as long as its result can be read, unless its id is free all the same."""
    if record.state == "processing" or record.prune_at is None or record.prune_at > now:
        return False
    return record.state == "cancelled" or record.superseded or not record.is_readable(now)
