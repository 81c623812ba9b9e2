"""What callers do with jobs from outside a run: enqueue, cancel, retry, delete, prune."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from pgjq.errors import PolicyError
from pgjq.job import LIVE, CancelResult
from pgjq.policy import refusal
from pgjq.storage.model.admission import admit, check
from pgjq.storage.model.reads import status_of
from pgjq.storage.model.runs import end

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.job import EnqueueResult, JobStatus
    from pgjq.options import Submission
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.record import Record


def enqueue(jobs: Jobs, queue: str, submissions: Sequence[Submission]) -> list[EnqueueResult]:
    """Add jobs whose ids are free, and for which the queue's policy has a place."""
    for job in submissions:
        check(jobs, queue, job)
    return [admit(jobs, queue, job) for job in submissions]


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
    if record is None:
        return None
    if record.state in ("failed", "cancelled"):
        if not may_retry(jobs, record):
            raise PolicyError(f"queue {queue!r} has no place for job {job_id!r} now: another one of its key has it")
        put_back(jobs, record)
    return status_of(record, jobs.now)


def may_retry(jobs: Jobs, record: Record) -> bool:
    """Say whether a job can be put back: it has failed or was cancelled, and its queue's policy has a place for it."""
    if record.state not in ("failed", "cancelled"):
        return False
    return refusal(jobs.policy(record.queue), jobs.others(record)) is None


def put_back(jobs: Jobs, record: Record) -> None:
    """Put a job that has ended back with all its attempts."""
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


def delete(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> int:
    """Forget jobs that are not running, and their ids."""
    found = [jobs.current(queue, job_id) for job_id in set(job_ids)]
    doomed = [r for r in found if r is not None and r.state != "processing"]
    for record in doomed:
        jobs.forget(record)
    return len(doomed)


def prune(jobs: Jobs, limit: int) -> int:
    """Remove records whose time has passed."""
    doomed = list(islice((r for r in jobs.records.values() if _is_prunable(jobs, r)), limit))
    for record in doomed:
        jobs.forget(record)
    return len(doomed)


def _is_prunable(jobs: Jobs, record: Record) -> bool:
    """A record stays as long as its result can be read, unless its id is free all the same.

    What blocks a key in strict order stays whatever its age.
    """
    if record.state == "processing" or record.prune_at is None or record.prune_at > jobs.now:
        return False
    if record.state in ("failing", "failed") and jobs.policy(record.queue) == "key_strict_fifo":
        return False
    return record.state == "cancelled" or record.superseded or not record.is_readable(jobs.now)
