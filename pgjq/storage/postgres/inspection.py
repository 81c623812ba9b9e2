"""Inspection of PostgreSQL: bounded reads, and a time limit for each statement.

Searches are in `pgjq.storage.postgres.search`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.job import JobError, JobStatus
from pgjq.storage.inspection import (
    AuditEntry,
    BlockedKey,
    Content,
    FoundJob,
    JobSearch,
    Leader,
    Minute,
    QueueOverview,
    Rights,
    SearchPage,
    Stalled,
    Totals,
)
from pgjq.storage.postgres import array_literals, rows
from pgjq.storage.postgres.search import SLACK, Candidate, Search
from pgjq.storage.postgres.session import fetch_limited

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import Attempt, WorkerInfo
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.session import Rows

TIMEOUT: Final = 2.0  # Seconds that a statement may take.
_COUNTS: Final = ("deferred", "ready", "processing", "failing", "completed", "failed", "cancelled")
# The function that each action needs; pausing needs a column.
_ACTIONS: Final = {"retry": "retry_job", "retry_many": "retry_jobs", "cancel": "cancel_jobs", "delete": "delete_jobs",
                   "redrive": "redrive", "release": "release_running", "reschedule": "reschedule_job"}  # fmt: skip


class PostgresInspection:
    """See `Inspection`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def queues(self, *, queue: str | None = None, name: str | None = None, limit: int) -> list[QueueOverview]:
        """See `Inspection`."""
        found = await self._fetch("inspect_queues", queue=queue, name=name, limit=limit)
        return [_queue_overview(row) for row in found]

    async def totals(self) -> Totals:
        """See `Inspection`."""
        ((queues, *sums, processing),) = await self._fetch("inspect_totals")
        ready, deferred, failing, failed, completed = (None if count is None else int(count) for count in sums)
        return Totals(queues, ready, deferred, failing, failed, completed, processing)

    async def minutes(self, queue: str | None, count: int) -> list[Minute]:
        """See `Inspection`."""
        return [Minute(*row) for row in await self._fetch("inspect_minutes", queue=queue, minutes=count)]

    async def search(self, wanted: JobSearch, after: str | None, limit: int) -> SearchPage:
        """See `Inspection`."""
        queue_id = None if wanted.queue is None else await self._queue_id(wanted.queue)
        if wanted.queue is not None and queue_id is None:
            return SearchPage([])
        return await Search(self, wanted, queue_id, limit).page(after)

    async def status(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Inspection`. A login that may not read results reads the description."""
        if "get_jobs" in (await self._rights())[0]:
            found = await self._fetch("get", queue=queue, ids=array_literals.texts([job_id]))
            return rows.job_status(found[0]) if found else None
        page = await self.search(JobSearch(queue=queue, id=job_id), None, 1)
        return page.jobs[0].status if page.jobs else None

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """See `Inspection`."""
        if "get_attempts" not in (await self._rights())[0]:
            return []
        return [rows.attempt(row) for row in await self._fetch("attempts", queue=queue, id=job_id)]

    async def content(self, queue: str, job_id: str, most: int) -> Content | None:
        """See `Inspection`."""
        found = await self._fetch("inspect_content", queue=queue, id=job_id, most=most)
        if not found:
            return None
        payload, payload_size, checkpoint, checkpoint_size = found[0]
        return Content(payload, payload_size, checkpoint, checkpoint_size or 0)

    async def workers(self, limit: int) -> list[WorkerInfo]:
        """See `Inspection`."""
        return [rows.worker_info(row) for row in await self._fetch("inspect_workers", limit=limit)]

    async def leaders(self) -> list[Leader]:
        """See `Inspection`."""
        return [
            Leader(role, None if pid is None else f"session {pid}{f' from {host}' if host else ''}", since)
            for role, pid, host, since in await self._fetch("inspect_leaders")
        ]

    async def stalled(self, limit: int) -> list[Stalled]:
        """See `Inspection`."""
        return [Stalled(*row) for row in await self._fetch("inspect_stalled", limit=limit)]

    async def blocked(self, queue: str | None, limit: int) -> list[BlockedKey]:
        """See `Inspection`."""
        return [BlockedKey(*row) for row in await self._fetch("inspect_blocked", queue=queue, limit=limit)]

    async def rights(self) -> Rights:
        """See `Inspection`. Without the right to write down an action, none is allowed."""
        functions, pause, content, audit = await self._rights()
        actions = {action for action, needed in _ACTIONS.items() if needed in functions}
        if pause:
            actions |= {"pause", "resume", "schedule"}
        return Rights(frozenset(actions if "begin_action" in functions else ()), content, audit)

    async def mark(self) -> str:
        """See `Inspection`."""
        return (await self._fetch("inspect_mark"))[0][0]

    async def audit(self, *, queue: str | None, before: int | None, limit: int) -> list[AuditEntry]:
        """See `Inspection`."""
        found = await self._fetch("inspect_audit", queue=queue, before=before, limit=limit)
        return [AuditEntry(*row) for row in found]

    async def begin_action(self, actor: str, action: str, queue: str, ids: Sequence[str]) -> Any:
        """See `Inspection`."""
        found = await self._fetch(
            "begin_action", actor=actor, action=action, queue=queue, ids=array_literals.texts(ids)
        )
        return found[0][0]

    async def end_action(self, number: Any, count: int) -> None:
        """See `Inspection`."""
        await self._fetch("end_action", id=number, count=count)

    async def candidates(self, walk: str, queue_id: int | None, params: dict[str, Any]) -> list[Candidate]:
        """Walk an index from where the search stopped."""
        found = await self._fetch(f"search_{walk}", queue_id=queue_id, **params)
        return [Candidate(*row) for row in found]

    async def describe(self, candidates: Sequence[Candidate], wanted: JobSearch) -> list[tuple[int, FoundJob]]:
        """Describe the candidates that match, by their numbers."""
        own = [candidate for candidate in candidates if candidate.queue_id is not None]
        if not own:
            return []
        found = await self._fetch(
            "describe_jobs",
            queue_ids=[candidate.queue_id for candidate in own],
            seqs=[candidate.seq for candidate in own],
            state=wanted.state,
            id=wanted.id,
            key=wanted.key,
            task=wanted.task,
            worker=wanted.worker,
            error=wanted.error,
            created_before=wanted.created_before,
            created_after=wanted.created_after,
            ended_before=wanted.ended_before,
            ended_after=wanted.ended_after,
        )
        return [(row[0], _found(row[1:])) for row in found]

    async def seq_at(self, at: datetime | None) -> int:
        """Return the first job's number since a time; up to `SLACK` earlier jobs may be higher."""
        return 0 if at is None else (await self._fetch("search_before", before=at))[0][0] + SLACK

    async def _queue_id(self, name: str) -> int | None:
        found = await self._fetch("queues", queue=name)
        return found[0][1] if found else None

    async def _rights(self) -> tuple[list[str], bool, bool, bool]:
        return (await self._fetch("inspect_rights"))[0]  # pyright: ignore[reportReturnType]

    async def _fetch(self, name: str, /, **params: Any) -> Rows:
        """Run a statement with a time limit."""
        async with self._pool.session() as session:
            return await fetch_limited(session, name, params, TIMEOUT)


def _queue_overview(row: Sequence[Any]) -> QueueOverview:
    name, paused, takes_dead_letters, ready, oldest, processing, counted = row
    stats = None
    if counted is not None:
        counts = [counted.get(count, 0) for count in _COUNTS]
        stats = rows.queue_stats(name, [*counts, counted["oldest_ready_age"]])
    return QueueOverview(name, paused, ready, oldest, processing, stats, takes_dead_letters)


def _found(row: Sequence[Any]) -> FoundJob:
    queue, job_id, state, created_at, attempts, max_attempts, priority, *times, worker, stalled, key = row[:14]
    task, kind, message, place = row[14:]
    run_at, started_at, finished_at, locked_until = times
    status = JobStatus(
        id=job_id,
        queue=queue,
        state=state,
        created_at=created_at,
        attempts=attempts,
        max_attempts=max_attempts,
        error=None if kind is None else JobError(kind, message or ""),
        priority=priority,
        run_at=run_at,
        started_at=started_at,
        finished_at=finished_at,
        locked_until=locked_until,
        worker=worker,
        stalled=stalled,
        singleton_key=key,
        task=task,
    )
    return FoundJob(status, place)
