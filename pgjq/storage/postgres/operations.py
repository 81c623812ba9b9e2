"""The operations on PostgreSQL, in both modes from one source.

An operation is one statement of `sql/queries`, whose header states its guarantees, on a pooled connection in autocommit
mode; operations turn values into parameters and rows into values. Only `enqueue` may use a caller connection, and only
a batch of several pieces is a transaction of more than one statement. Runs are in `runs.py`, waiting is in
`waiting.py`, queues are in `definitions.py`, and `statements.py` runs the statements of all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.job import CancelResult
from pgjq.storage import policy_errors
from pgjq.storage.postgres import array_literals, rows
from pgjq.storage.postgres.caller_connection import wrap_caller_connection
from pgjq.storage.postgres.claim_positions import ClaimPositions
from pgjq.storage.postgres.definitions import PostgresDefinitions
from pgjq.storage.postgres.enqueue import enqueue
from pgjq.storage.postgres.result_waiter import ResultReads
from pgjq.storage.postgres.runs import PostgresRuns
from pgjq.storage.postgres.schedules import PostgresSchedules
from pgjq.storage.postgres.waiting import PostgresWaiting

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import Attempt, EnqueueResult, JobStatus, QueueStats, WarningReason, WorkerInfo
    from pgjq.options import JobFilter, Submission
    from pgjq.storage.postgres.leader import LeaderLocks
    from pgjq.storage.postgres.listener import Listener
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.workers import Registration


PAYLOAD_MAX: Final = 2**30  # PostgreSQL's limit of a value.


class PostgresOperations(PostgresRuns, PostgresWaiting, PostgresDefinitions, PostgresSchedules):
    """The operations, in the mode of the pool."""

    def __init__(self, mode: Mode, pool: Pool, queries: Queries, listener: Listener, leader_locks: LeaderLocks) -> None:
        super().__init__(mode, pool, queries)
        self._listener = listener
        self._leader_locks = leader_locks
        self._result_reads = ResultReads(mode, pool, queries)
        self._worker_ids = {}
        self._is_busy = False
        self._positions = ClaimPositions()

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, generated_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """See `Operations`. Nothing is retried on a caller connection."""
        if connection is None:
            return await self._repeated(lambda session: enqueue(session, queue, jobs, generated_ids=generated_ids))
        session = wrap_caller_connection(connection, self._mode, self._queries)
        await self._pool.check()
        return await enqueue(session, queue, jobs, generated_ids=generated_ids)

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """See `Operations`. Repeats its reads, so that it sees each change of a concurrent writer."""
        params = {"queue": queue, "id": job_id}
        while True:
            if await self.cancel_many(queue, [job_id]):
                return CancelResult("cancelled")
            found = (await self.get(queue, [job_id])).get(job_id)
            match found.state if found else None:
                case None:
                    return CancelResult("not_found")
                case "completed" | "failed" | "cancelled" as ended:
                    return CancelResult(ended)
                case "processing":
                    if not active or await self._fetch("request_cancel", params):
                        return CancelResult("processing")
                case _:
                    continue

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Operations`."""
        found = await self._fetch("retry", {"queue": queue, "id": job_id})
        if not found:
            return None
        *job, became = found[0]
        if became == "taken":
            raise policy_errors.no_slot(queue, job_id)
        return rows.job_status(job)

    async def release(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return (await self._fetch("release", {"queue": queue, "ids": array_literals.texts(sorted(job_ids))}))[0][0]

    async def reschedule(
        self, queue: str, job_id: str, *, run_at: datetime | None = None, priority: int | None = None
    ) -> JobStatus | None:
        """See `Operations`."""
        params = {"queue": queue, "id": job_id, "run_at": run_at, "priority": priority}
        found = await self._fetch("reschedule", params)
        return rows.job_status(found[0]) if found else None

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return len(await self._fetch("delete", {"queue": queue, "ids": array_literals.texts(sorted(job_ids))}))

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Operations`."""
        found = await self._fetch("get", {"queue": queue, "ids": array_literals.texts(job_ids)})
        return {status.id: status for status in map(rows.job_status, found)}

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """See `Operations`."""
        return [rows.attempt(row) for row in await self._fetch("attempts", {"queue": queue, "id": job_id})]

    async def content(self, queue: str, job_id: str) -> tuple[bytes, bytes | None] | None:
        """Read a job's whole payload and checkpoint."""
        found = await self._fetch("inspect_content", {"queue": queue, "id": job_id, "most": PAYLOAD_MAX})
        return (found[0][0], found[0][2]) if found else None

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """See `Operations`."""
        params = {
            "queue": wanted.queue,
            "state": wanted.state,
            "singleton_key": wanted.singleton_key,
            "task": wanted.task,
            "created_before": wanted.created_before,
            "created_after": wanted.created_after,
            "after": wanted.after,
            "limit": wanted.limit,
        }
        found = await self._fetch("find", params)
        return [rows.job_status(row) for row in found], found[-1][0] if len(found) == wanted.limit else None

    async def queue_names(self) -> list[str]:
        """See `Operations`."""
        return [name for (name,) in await self._fetch("queue_names")]

    async def stats(self, queue: str) -> QueueStats:
        """See `Operations`."""
        return rows.queue_stats(queue, (await self._fetch("stats", {"queue": queue}))[0])

    async def worker_seen(self, registration: Registration) -> None:
        """See `Operations`."""
        key, worker, queues, heartbeat = registration
        params = {"registration": key, "worker": worker, "queues": list(queues), "heartbeat": heartbeat}
        await self._fetch("worker_seen", params)

    async def worker_stopped(self, registration: Registration) -> None:
        """See `Operations`."""
        await self._fetch("worker_stopped", {"registration": registration.id})

    async def workers(self) -> list[WorkerInfo]:
        """See `Operations`."""
        return [rows.worker_info(row) for row in await self._fetch("workers")]

    async def prune(self, *, limit: int = 1000) -> int:
        """See `Operations`."""
        ended = (await self._fetch("prune", {"limit": limit}))[0][0]
        self._worker_ids.clear()
        return ended + (await self._fetch_or_set_aside("prune_waiting", {"limit": limit - ended}))[0][0]

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """See `Operations`."""
        await self._pool.check()
        return await self._run_blocking(lambda: self._leader_locks.elect(role, candidate, ttl))

    async def leads(self, role: str, candidate: str) -> bool:
        """See `Operations`."""
        return self._leader_locks.leads(role, candidate)

    async def resign(self, role: str, candidate: str) -> None:
        """See `Operations`."""
        await self._run_blocking(lambda: self._leader_locks.resign(role, candidate))

    async def warn(self, queue: str, job_id: str, *, task: str | None, reason: WarningReason, count: int) -> None:
        """See `Operations`."""
        await self._fetch("warn", {"queue": queue, "id": job_id, "task": task, "reason": reason, "count": count})

    async def close(self) -> None:
        """See `Operations`."""
        await self._pool.close()
