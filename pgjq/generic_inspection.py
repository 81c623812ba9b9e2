"""Inspection of any storage through its operations: Memory, File, Redis and others.

It looks at the first `MOST` jobs of a storage. The record of actions is in this process's memory, and holds the last
`KEPT` of them; each is also a line of the log.
"""

from __future__ import annotations

import logging
import re
import time
from collections import Counter, deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING, Any, Final, cast

from pgjq.options import JobFilter
from pgjq.storage.inspection import (
    AuditEntry,
    BlockedKey,
    Content,
    FoundJob,
    Inspection,
    JobSearch,
    Leader,
    Minute,
    QueueOverview,
    Rights,
    SearchPage,
    Stalled,
    Totals,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.job import Attempt, JobError, JobStatus, QueueStats, WorkerInfo
    from pgjq.storage.base import Definitions, Storage

MOST: Final = 20_000
PAGE: Final = 1000
KEPT: Final = 1000
ACTIONS: Final[frozenset[str]] = frozenset(("retry", "retry_many", "cancel", "delete", "release", "reschedule"))
DEFINED: Final[frozenset[str]] = frozenset(("pause", "resume", "redrive", "schedule"))
_FRAME: Final = re.compile(r'File "(?:[^"]*[/\\])?([^"/\\]+)", line (\d+), in (.+)')

logger: Final = logging.getLogger("pgjq")


def inspection_of(storage: Storage) -> Inspection:
    """Return the storage's own inspection, or one through its operations."""
    own = getattr(storage, "inspection", None)
    return own() if own is not None else OperationsInspection(storage)


class OperationsInspection:
    """See `Inspection`."""

    def __init__(self, storage: Storage) -> None:
        self._ops = storage.operations("async")
        self._has_definitions = storage.capabilities.definitions
        self._audit: deque[AuditEntry] = deque(maxlen=KEPT)
        self._number = 0

    async def queues(self, *, queue: str | None = None, name: str | None = None, limit: int) -> list[QueueOverview]:
        """See `Inspection`."""
        names = [
            n for n in await self._ops.queue_names() if queue in (None, n) and (name or "").casefold() in n.casefold()
        ]
        definitions = {info.name: info for info in await self._definitions().queues()} if self._has_definitions else {}
        stats = [await self._ops.stats(n) for n in names]
        stats.sort(key=lambda s: (-s.ready - s.failing, s.name))
        shown = sorted(stats[:limit], key=lambda s: s.name)
        dead = {info.dead_letter for info in definitions.values()}
        return [_queue_overview(counted, definitions.get(counted.name), counted.name in dead) for counted in shown]

    async def totals(self) -> Totals:
        """See `Inspection`."""
        stats = [await self._ops.stats(name) for name in await self._ops.queue_names()]
        total: Counter[str] = Counter()
        for counted in stats:
            for state in ("ready", "deferred", "failing", "failed", "completed", "processing"):
                total[state] += getattr(counted, state)
        return Totals(len(stats), **{state: total[state] for state in ("ready", "deferred", "failing", "failed")},
                      completed=total["completed"], processing=total["processing"])  # fmt: skip

    async def minutes(self, queue: str | None, count: int) -> list[Minute]:
        """See `Inspection`."""
        since = datetime.now(UTC) - timedelta(minutes=count)
        by_minute: dict[datetime, list[JobStatus]] = {}
        for job in await self._jobs(JobFilter(queue=queue)):
            if job.finished_at is not None and job.finished_at >= since:
                by_minute.setdefault(job.finished_at.replace(second=0, microsecond=0), []).append(job)
        return [_minute(at, jobs) for at, jobs in sorted(by_minute.items())]

    async def search(self, wanted: JobSearch, after: str | None, limit: int) -> SearchPage:
        """See `Inspection`."""
        looked_at = await self._jobs(_filter(wanted))
        found = [job for job in map(_found, looked_at) if _matches(job, wanted)]
        found.sort(key=lambda job: job.status.created_at, reverse=True)
        start = int(after) if after and after.isdecimal() else 0
        following = str(start + limit) if len(found) > start + limit else None
        return SearchPage(found[start : start + limit], following, len(looked_at))

    async def status(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Inspection`."""
        return (await self._ops.get(queue, [job_id])).get(job_id)

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """See `Inspection`."""
        return await self._ops.attempts(queue, job_id)

    async def content(self, queue: str, job_id: str, most: int) -> Content | None:
        """See `Inspection`."""
        read = getattr(self._ops, "content", None)
        found: tuple[bytes, bytes | None] | None = None if read is None else await read(queue, job_id)
        if found is None:
            return None
        payload, checkpoint = found
        return Content(payload[:most], len(payload), checkpoint and checkpoint[:most], len(checkpoint or b""))

    async def workers(self, limit: int) -> list[WorkerInfo]:
        """See `Inspection`."""
        return (await self._ops.workers())[:limit]

    async def leaders(self) -> list[Leader]:
        """See `Inspection`. These storages do not tell."""
        return []

    async def stalled(self, limit: int) -> list[Stalled]:
        """See `Inspection`."""
        now = datetime.now(UTC)
        running = await self._jobs(JobFilter(state="processing"))
        late = [
            Stalled(job.queue, job.id, job.worker, (now - job.locked_until).total_seconds(), "lease")
            for job in running
            if job.locked_until is not None and job.locked_until <= now
        ]
        return sorted(late, key=lambda job: -job.overdue)[:limit]

    async def blocked(self, queue: str | None, limit: int) -> list[BlockedKey]:
        """See `Inspection`."""
        if not self._has_definitions:
            return []
        found: list[BlockedKey] = []
        for info in await self._definitions().queues(queue):
            if info.policy == "key_strict_fifo":
                found += await self._blocked_in(info.name)
        return found[:limit]

    async def rights(self) -> Rights:
        """See `Inspection`."""
        return Rights(ACTIONS | DEFINED if self._has_definitions else ACTIONS)

    async def mark(self) -> str:
        """See `Inspection`. These storages do not tell, so something may have changed."""
        return str(time.monotonic_ns())

    async def audit(self, *, queue: str | None, before: int | None, limit: int) -> list[AuditEntry]:
        """See `Inspection`."""
        found = [e for e in reversed(self._audit) if queue in (None, e.queue) and (before is None or e.number < before)]
        return found[:limit]

    async def begin_action(self, actor: str, action: str, queue: str, ids: Sequence[str]) -> Any:
        """See `Inspection`."""
        self._number += 1
        entry = AuditEntry(self._number, datetime.now(UTC), actor, action, queue, list(ids[:20]), len(ids), None)
        self._audit.append(entry)
        extra = {"actor": actor, "action": action, "queue": queue, "ids": list(ids[:20])}
        logger.info("action on the web page", extra=extra)
        return self._number

    async def end_action(self, number: Any, count: int) -> None:
        """See `Inspection`."""
        for index, entry in enumerate(self._audit):
            if entry.number == number:
                self._audit[index] = replace(entry, count=count)

    async def _blocked_in(self, queue: str) -> list[BlockedKey]:
        keys = set(await self._definitions().blocked_keys(queue))
        failed = await self._jobs(JobFilter(queue=queue, state="failed"))
        return [
            BlockedKey(queue, job.singleton_key or "", "failed", job.id, None, None)
            for job in failed
            if job.singleton_key in keys
        ]

    async def _jobs(self, wanted: JobFilter) -> list[JobStatus]:
        found: list[JobStatus] = []
        after: int | None = 0
        while after is not None and len(found) < MOST:
            page, after = await self._ops.find(replace(wanted, after=after, limit=PAGE))
            found += page
        return found

    def _definitions(self) -> Definitions:
        return cast("Definitions", self._ops)


def error_place(error: JobError | None) -> str | None:
    """Return file, line and function of the last frame of an error's traceback."""
    frames = _FRAME.findall((error.traceback or "")[-4000:]) if error is not None else []
    return "{}:{} in {}".format(*frames[-1]) if frames else None


def _queue_overview(counted: QueueStats, info: Any, takes_dead_letters: bool) -> QueueOverview:  # noqa: FBT001
    return QueueOverview(
        counted.name,
        info is not None and info.paused,
        counted.ready,
        counted.oldest_ready_age,
        counted.processing,
        counted,
        takes_dead_letters,
    )


def _minute(at: datetime, jobs: Sequence[JobStatus]) -> Minute:
    states = Counter(job.state for job in jobs)
    runs = [job for job in jobs if job.started_at is not None and job.finished_at is not None]
    waited = [(job.started_at - job.created_at).total_seconds() for job in runs if job.started_at]
    ran = [(job.finished_at - job.started_at).total_seconds() for job in runs if job.finished_at and job.started_at]
    return Minute(
        at,
        states["completed"],
        states["failed"],
        states["cancelled"],
        median(waited) if waited else None,
        median(ran) if ran else None,
    )


def _filter(wanted: JobSearch) -> JobFilter:
    return JobFilter(
        queue=wanted.queue,
        state=wanted.state,
        singleton_key=wanted.key,
        created_before=wanted.created_before,
        created_after=wanted.created_after,
    )


def _found(status: JobStatus) -> FoundJob:
    return FoundJob(replace(status, result=None), error_place(status.error))


def _matches(job: FoundJob, wanted: JobSearch) -> bool:
    status = job.status
    return (
        wanted.id in (None, status.id)
        and wanted.worker in (None, status.worker)
        and wanted.task in (None, status.task)
        and _ended_in_time(status.finished_at, wanted)
        and (wanted.error is None or wanted.error.casefold() in _error_text(job).casefold())
    )


def _ended_in_time(finished_at: datetime | None, wanted: JobSearch) -> bool:
    if wanted.ended_after is None and wanted.ended_before is None:
        return True
    after, before = wanted.ended_after or datetime.min.replace(tzinfo=UTC), wanted.ended_before
    return finished_at is not None and finished_at >= after and (before is None or finished_at < before)


def _error_text(job: FoundJob) -> str:
    error = job.status.error
    return "" if error is None else f"{error.type}: {error.message}\n{job.place}"
