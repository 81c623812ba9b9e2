"""Reads: operations that change no job."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import TYPE_CHECKING

from pgjq.job import LIVE, Attempt, JobStatus, QueueStats
from pgjq.storage.base import Answer
from pgjq.storage.model.record import kept_attempts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.options import JobFilter
    from pgjq.storage.model.jobs import Jobs
    from pgjq.storage.model.record import Record


def get(jobs: Jobs, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
    """Read jobs by id."""
    found = ((job_id, jobs.current(queue, job_id)) for job_id in job_ids)
    return {job_id: status_of(record, jobs.now) for job_id, record in found if record is not None}


def attempts(jobs: Jobs, queue: str, job_id: str) -> list[Attempt]:
    """Read the ended runs of a job: its history, and the completing run from its record."""
    record = jobs.current(queue, job_id)
    if record is None:
        return []
    runs = record.history
    if record.state == "completed" and record.started_at is not None and record.finished_at is not None:
        runs = (*runs, Attempt(record.lease, record.worker, record.started_at, record.finished_at, "completed"))
    return list(kept_attempts(runs))


def content(jobs: Jobs, queue: str, job_id: str) -> tuple[bytes, bytes | None] | None:
    """Read a job's payload and checkpoint."""
    record = jobs.current(queue, job_id)
    return None if record is None else (record.payload, record.checkpoint)


def find(jobs: Jobs, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
    """List jobs in enqueue order."""
    matching = (r for r in jobs.records.values() if r.seq > wanted.after and _matches(r, wanted))
    page = list(islice(matching, wanted.limit))
    return [status_of(r, jobs.now) for r in page], page[-1].seq if len(page) == wanted.limit else None


def _matches(record: Record, wanted: JobFilter) -> bool:
    return (
        not record.superseded
        and wanted.queue in (None, record.queue)
        and wanted.state in (None, record.state)
        and wanted.singleton_key in (None, record.settings.singleton_key)
        and wanted.task in (None, record.task)
        and (wanted.created_before is None or record.created_at < wanted.created_before)
        and (wanted.created_after is None or record.created_at >= wanted.created_after)
    )


def stats(jobs: Jobs, queue: str) -> QueueStats:
    """Count a queue's jobs by state."""
    return count(queue, [r for (name, _), r in jobs.by_id.items() if name == queue], jobs.now)


def stats_of_all(jobs: Jobs) -> dict[str, QueueStats]:
    """Count the jobs of every queue by state, in one pass."""
    mine: dict[str, list[Record]] = {queue: [] for queue in jobs.queues}
    for (queue, _), record in jobs.by_id.items():
        mine[queue].append(record)
    return {queue: count(queue, records, jobs.now) for queue, records in mine.items()}


def count(queue: str, mine: Sequence[Record], now: datetime) -> QueueStats:
    """Count jobs by state."""
    states = Counter(r.state for r in mine)
    deferred = sum(r.state == "queued" and r.run_at > now for r in mine)
    due = [r.run_at for r in mine if r.state in ("queued", "failing") and r.run_at <= now]
    return QueueStats(
        name=queue,
        queued=states["queued"],
        deferred=deferred,
        ready=states["queued"] - deferred,
        processing=states["processing"],
        failing=states["failing"],
        completed=states["completed"],
        failed=states["failed"],
        cancelled=states["cancelled"],
        total=len(mine),
        oldest_ready_age=(now - min(due)).total_seconds() if due else None,
    )


def answer(jobs: Jobs, seq: int | None) -> Answer | None:
    """Read a job's state by its number, whichever job has its id now."""
    record = None if seq is None else jobs.records.get(seq)
    if record is None:
        return None
    status = status_of(record, jobs.now)
    expired = record.finished_at is not None and not record.is_readable(jobs.now)
    return Answer(status.state, status.attempts, status.max_attempts, status.result, status.error, expired)


def running(jobs: Jobs) -> Counter[str]:
    """Count the jobs that each worker runs."""
    return Counter(r.worker for r in jobs.processing.values() if r.worker is not None)


def status_of(record: Record, now: datetime) -> JobStatus:
    """Describe one job, with its result or error as long as they can be read."""
    ended = record.state not in LIVE
    readable = not ended or record.is_readable(now)
    return JobStatus(
        id=record.id,
        queue=record.queue,
        state=record.state,
        created_at=record.created_at,
        attempts=record.attempts,
        max_attempts=record.max_attempts,
        result=record.result if readable else None,
        error=record.error if readable else None,
        priority=record.settings.priority,
        run_at=None if ended else record.run_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        locked_until=record.locked_until,
        worker=record.worker,
        lease=record.lease,
        stalled=record.stalled,
        singleton_key=record.settings.singleton_key,
        stalled_on=record.stalled_on,
        source=record.source,
        task=record.task,
        headers=record.headers,
    )
