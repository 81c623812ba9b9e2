"""Inspection of PostgreSQL. Every statement has a time limit, and reads a bounded number of rows.

A search walks the index that fits what is wanted (`_walks`), a batch of candidates at a time, and describes the
candidates that match, until the page is full or its time is over. The cursor of the next page is the walk and the place
in it where this page ended.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pgjq.job import JobError, JobStatus
from pgjq.storage.inspection import (
    AuditEntry,
    BlockedKey,
    Content,
    FoundJob,
    JobSearch,
    Leader,
    Minute,
    QueueGlance,
    Rights,
    SearchPage,
    Stalled,
    Totals,
)
from pgjq.storage.postgres import literals, rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import WorkerInfo
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.session import Rows

TIMEOUT: Final = 2000  # Milliseconds that a statement may take.
BATCH: Final = 500  # Candidates of one step of a search.
SEARCH_SECONDS: Final = 0.1
# Transactions that enqueue side by side commit numbers and times in slightly different orders.
SLACK: Final = 1000
SMALL: Final = 2000  # A queue of so few jobs is searched whole.
_COUNTS: Final = ("deferred", "ready", "processing", "failing", "completed", "failed", "cancelled")
# The function that each action needs; pausing needs a column.
_ACTIONS: Final = {"retry": "retry_job", "retry_many": "retry_jobs", "cancel": "cancel_jobs", "delete": "delete_jobs",
                   "redrive": "redrive"}  # fmt: skip


class _Candidate(NamedTuple):
    queue_id: int | None  # None: of another queue than the one that is wanted.
    seq: int
    mark: str | None


class PostgresInspection:
    """See `Inspection`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def queues(self, *, queue: str | None = None, name: str | None = None, limit: int) -> list[QueueGlance]:
        """See `Inspection`."""
        found = await self._fetch("inspect_queues", queue=queue, name=name, limit=limit)
        return [_glance(row) for row in found]

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
        return await _Search(self, wanted, queue_id, limit).page(after)

    async def status(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Inspection`. A login that may not read results reads the description."""
        if "get_jobs" in (await self._rights())[0]:
            found = await self._fetch("get", queue=queue, ids=literals.texts([job_id]))
            return rows.job_status(found[0]) if found else None
        page = await self.search(JobSearch(queue=queue, id=job_id), None, 1)
        return page.jobs[0].status if page.jobs else None

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
        found = await self._fetch("begin_action", actor=actor, action=action, queue=queue, ids=literals.texts(ids))
        return found[0][0]

    async def end_action(self, number: Any, count: int) -> None:
        """See `Inspection`."""
        await self._fetch("end_action", id=number, count=count)

    async def candidates(self, walk: str, queue_id: int | None, params: dict[str, Any]) -> list[_Candidate]:
        """Walk an index from where the search stopped."""
        found = await self._fetch(f"search_{walk}", queue_id=queue_id, **params)
        return [_Candidate(*row) for row in found]

    async def describe(self, candidates: Sequence[_Candidate], wanted: JobSearch) -> list[tuple[int, FoundJob]]:
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
        )
        return [(row[0], _found(row[1:])) for row in found]

    async def seq_at(self, at: datetime | None) -> int:
        """Return about the number of the first job since a time: at most `SLACK` jobs before it have a higher one."""
        return 0 if at is None else (await self._fetch("search_before", before=at))[0][0] + SLACK

    async def _queue_id(self, name: str) -> int | None:
        found = await self._fetch("queues", queue=name)
        return found[0][1] if found else None

    async def _rights(self) -> tuple[list[str], bool, bool, bool]:
        return (await self._fetch("inspect_rights"))[0]  # pyright: ignore[reportReturnType]

    async def _fetch(self, name: str, /, **params: Any) -> Rows:
        """Run a statement with a time limit."""
        async with self._pool.session() as session, session.transaction():
            await session.command(f"set local statement_timeout = {TIMEOUT}")
            return await session.fetch(name, params)


class _Search:
    """One search: walks, one after the other, until the page is full."""

    def __init__(self, inspection: PostgresInspection, wanted: JobSearch, queue_id: int | None, limit: int) -> None:
        self._inspection = inspection
        self._wanted = wanted
        self._queue_id = queue_id
        self._limit = limit
        self._until = time.monotonic() + SEARCH_SECONDS
        self._found: list[FoundJob] = []
        self._looked_at = 0

    async def page(self, after: str | None) -> SearchPage:
        """Return the page after a cursor, which is the number of a walk and a mark."""
        stage, _, mark = (after or "").partition(":")
        if stage in ("", "small") and (whole := await self._small_queue(mark)) is not None:
            return whole
        walks = _walks(self._wanted)
        order = ORDERS.get(walks[0], "newest first")
        first = min(int(stage), len(walks) - 1) if stage.isdecimal() else 0
        for number, walk in enumerate(walks[first:], first):
            stopped = await self._walk(walk, mark or None)
            if stopped is not None:
                return SearchPage(self._found, f"{number}:{stopped}", self._looked_at, order)
            mark = ""
        return SearchPage(self._found, None, self._looked_at, order)

    async def _small_queue(self, mark: str) -> SearchPage | None:
        """Search all jobs of a small queue, the newest first; None if the queue has many."""
        if self._queue_id is None or self._wanted.id is not None:
            return None
        found = await self._inspection.candidates("queue", self._queue_id, {"limit": SMALL + 1})
        if len(found) > SMALL:
            return None
        before = int(mark) if mark.isdecimal() else inf
        ordered = [c._replace(mark=str(c.seq)) for c in sorted(found, key=lambda c: -c.seq) if c.seq < before]
        stopped = self._take(ordered, await self._inspection.describe(ordered, self._wanted))
        return SearchPage(self._found, None if stopped is None else f"small:{stopped}", len(found))

    async def _walk(self, walk: str, mark: str | None) -> str | None:
        """Walk until the page is full or the time is over; return where, or None at the end of the walk."""
        by_age = walk in ("recent", "live")
        if by_age and mark is None and self._wanted.created_before is not None:
            mark = str(await self._inspection.seq_at(self._wanted.created_before))
        floor = await self._inspection.seq_at(self._wanted.created_after) - SLACK if by_age else 0
        while True:
            params = {"id": self._wanted.id} if walk == "id" else {"mark": mark}
            found = await self._inspection.candidates(walk, self._queue_id, {"limit": BATCH, **params})
            self._looked_at += len(found)
            stopped = self._take(found, await self._inspection.describe(found, self._wanted))
            if stopped is not None:
                return stopped
            if len(found) < BATCH or (by_age and found[-1].seq < floor):
                return None
            mark = found[-1].mark
            if time.monotonic() > self._until:
                return mark

    def _take(self, candidates: Sequence[_Candidate], matching: Sequence[tuple[int, FoundJob]]) -> str | None:
        """Add what matches; return the mark of the last job that was taken if there are more."""
        room = self._limit - len(self._found)
        self._found += [job for _, job in matching[:room]]
        if len(matching) <= room:
            return None
        return next(candidate.mark for candidate in candidates if candidate.seq == matching[room - 1][0])


ORDERS: Final = {
    "ready": "next to run first",
    "processing": "first deadline first",
    "failing": "next to run first",
    "failed": "latest failure first",
}


def _walks(wanted: JobSearch) -> tuple[str, ...]:
    """Return the indexes to walk, the first of which gives the order."""
    if wanted.id is not None:
        return ("id",)
    if wanted.state in ("processing", "failing", "failed"):
        return (wanted.state,)
    if wanted.state == "queued":
        return ("live",) if wanted.queue is None else ("ready", "waiting", "blocked")
    if wanted.state is None and wanted.error is not None:
        return ("failed", "failing")
    return ("recent",)


def _glance(row: Sequence[Any]) -> QueueGlance:
    name, paused, takes_dead_letters, ready, oldest, processing, counted = row
    stats = None
    if counted is not None:
        counts = [counted.get(count, 0) for count in _COUNTS]
        stats = rows.queue_stats(name, [*counts, counted["oldest_ready_age"]])
    return QueueGlance(name, paused, ready, oldest, processing, stats, takes_dead_letters)


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
