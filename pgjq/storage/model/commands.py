"""Commands on jobs from outside a run, such as enqueue, cancel, retry and prune."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from pgjq.job import LIVE, CancelResult
from pgjq.storage import policy_errors
from pgjq.storage.model.admission import admit, check
from pgjq.storage.model.jobs import WAITING
from pgjq.storage.model.reads import status_of
from pgjq.storage.model.runs import end, release

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import EnqueueResult, JobStatus
    from pgjq.options import Settings, Submission
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.record import Record


def enqueue(jobs: Jobs, queue: str, submissions: Sequence[Submission]) -> list[EnqueueResult]:
    """Add jobs whose ids are free, and for which the queue's policy has a slot."""
    checked: Settings | None = None  # Jobs of a batch mostly share one object of settings.
    for job in submissions:
        if job.settings is not checked:
            check(jobs, queue, job)
            checked = job.settings
    return [admit(jobs, queue, job) for job in submissions]


def cancel(jobs: Jobs, queue: str, job_id: str, *, active: bool) -> CancelResult:
    """Cancel a job that is not running; with `active`, request cancellation of a running one."""
    record = jobs.current(queue, job_id)
    if record is None:
        return CancelResult("not_found")
    if record.state == "processing":
        if active and not record.cancel_requested:
            jobs.change(record, cancel_requested=True)
        return CancelResult("processing")
    if record.state in LIVE:
        end(jobs, record, "cancelled")
    return CancelResult(record.state)  # pyright: ignore[reportArgumentType]  (the job has ended)


def retry(jobs: Jobs, queue: str, job_id: str) -> JobStatus | None:
    """Queue a failed or cancelled job again with all its attempts."""
    record = jobs.current(queue, job_id)
    if record is None:
        return None
    if record.state in ("failed", "cancelled"):
        if not may_retry(jobs, record):
            raise policy_errors.no_slot(queue, job_id)
        put_back(jobs, record)
    return status_of(record, jobs.now)


def may_retry(jobs: Jobs, record: Record) -> bool:
    """Return whether a job has failed or was cancelled, and its policy has a slot for it."""
    if record.state not in ("failed", "cancelled"):
        return False
    return jobs.policy(record.queue).refusal(jobs.others(record)) is None


def put_back(jobs: Jobs, record: Record) -> None:
    """Queue an ended job again with all its attempts."""
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


def release_running(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> int:
    """Take running jobs away from their workers; return how many. Their attempts do not count."""
    found = [jobs.current(queue, job_id) for job_id in dict.fromkeys(job_ids)]
    running = [record for record in found if record is not None and record.state == "processing"]
    for record in running:
        if record.cancel_requested:
            end(jobs, record, "cancelled", "cancelled")
        else:
            release(jobs, record, "lease_lost", 0.0)
    return len(running)


def reschedule(
    jobs: Jobs, queue: str, job_id: str, *, run_at: datetime | None, priority: int | None
) -> JobStatus | None:
    """Change when a waiting job may run, and its priority."""
    record = jobs.current(queue, job_id)
    if record is None:
        return None
    if record.state in WAITING:
        changes: dict[str, Any] = {} if run_at is None else {"run_at": run_at}
        if priority is not None:
            changes["settings"] = replace(record.settings, priority=priority)
        jobs.change(record, **changes)
    return status_of(record, jobs.now)


def delete(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> int:
    """Delete jobs that are not running, and free their ids."""
    found = [jobs.current(queue, job_id) for job_id in set(job_ids)]
    deletable = [r for r in found if r is not None and r.state != "processing"]
    for record in deletable:
        jobs.forget(record)
    return len(deletable)


def prune(jobs: Jobs, limit: int) -> int:
    """Remove jobs that are past their retention."""
    prunable = list(islice((r for r in jobs.records.values() if _is_prunable(jobs, r)), limit))
    for record in prunable:
        jobs.forget(record)
    return len(prunable)


def _is_prunable(jobs: Jobs, record: Record) -> bool:
    """Return whether a job is past its retention and its result can no longer be read.

    The result does not count if the id is free anyway. A job that blocks a key in strict order stays, whatever its age.
    """
    if record.state == "processing" or record.prune_at is None or record.prune_at > jobs.now:
        return False
    if record.state in ("failing", "failed") and jobs.policy(record.queue).is_strict:
        return False
    return record.state == "cancelled" or record.superseded or not record.is_readable(jobs.now)
