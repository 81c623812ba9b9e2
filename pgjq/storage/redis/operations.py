"""The operations on Redis, in both modes from one source.

An operation on a queue is one Lua script (`lua/`), which states its guarantees in its header, and one round trip; this
module converts arguments and replies. An operation on several queues goes queue by queue, because in a cluster each
queue may be on another server. Runs are in `runs.py`, waiting is in `waiting.py`; `queue_scripts.py` runs the scripts.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pgjq.deadline import Deadline, bounded, current_deadline
from pgjq.errors import UnsupportedError
from pgjq.job import CancelResult
from pgjq.options import RETENTION_SECONDS
from pgjq.storage.redis import enqueue, rows
from pgjq.storage.redis.keys import OF_A_QUEUE
from pgjq.storage.redis.queue_scripts import QueueScripts
from pgjq.storage.redis.runs import RedisRuns
from pgjq.storage.redis.scripts import script
from pgjq.storage.redis.waiting import RedisWaiting
from pgjq.storage.workers import list_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import Attempt, EnqueueResult, JobStatus, QueueStats, WarningReason, WorkerInfo
    from pgjq.options import JobFilter, Submission
    from pgjq.storage.base import Claimed, JobTransaction
    from pgjq.storage.redis.storage import Channels, Shared
    from pgjq.storage.redis.transport import Transport
    from pgjq.storage.workers import Registration, WorkerRecord

R = TypeVar("R")

LOOKS: Final = 1000
LONGEST_MS: Final = 10**14
RESIGN_SECONDS: Final = 2.0
RETENTION: Final = rows.micros(RETENTION_SECONDS)


class RedisOperations(RedisRuns, RedisWaiting):
    """The operations, in the mode of the transport."""

    def __init__(self, mode: Mode, transport: Transport, channels: Channels, shared: Shared) -> None:
        self._mode: Mode = mode
        self._channels = channels
        self._transport = transport
        self._shared = shared
        self._keys = shared.keys
        self._scripts = QueueScripts(transport, shared)

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, generated_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """See `Operations`."""
        if connection is not None:
            raise UnsupportedError(
                "RedisStorage has no transactions; enqueue without connection=, or use PostgresStorage"
            )
        if not jobs:
            return []
        return enqueue.answers(
            jobs, await self._scripts.enqueue(queue, enqueue.arguments(jobs, generated_ids=generated_ids))
        )

    def job_transaction(
        self,
        claimed: Claimed,
        session_factory: Callable[[], Any] | None = None,
        *,
        idle_limit: float | None = None,
    ) -> AbstractAsyncContextManager[JobTransaction]:
        """Raise UnsupportedError: the handler's writes and the job cannot be committed together."""
        del session_factory, idle_limit
        raise UnsupportedError(
            f"RedisStorage has no transactions; complete job {claimed.lease.id!r} by returning its result"
        )

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """See `Operations`."""
        _, found = await self._scripts.run("cancel", queue, rows.write({"ids": [job_id], "active": active}))
        return CancelResult(found.decode())

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        count, *_ = await self._scripts.run("cancel", queue, rows.write({"ids": list(job_ids)}))
        return count

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Operations`."""
        _, found, *outcomes = await self._scripts.run("retry", queue, rows.write({"ids": [job_id], "show": True}))
        return next((status for _, status in rows.statuses(queue, found, outcomes)), None)

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        count, *_ = await self._scripts.run("retry", queue, rows.write({"ids": list(job_ids)}))
        return count

    async def release(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._scripts.run("release", queue, rows.write(list(job_ids)))

    async def reschedule(
        self, queue: str, job_id: str, *, run_at: datetime | None = None, priority: int | None = None
    ) -> JobStatus | None:
        """See `Operations`."""
        request = {"id": job_id, "run_at": run_at and rows.micros_at(run_at), "priority": priority}
        found, *outcomes = await self._scripts.run("reschedule", queue, rows.write(request))
        return next((status for _, status in rows.statuses(queue, found, outcomes)), None)

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._scripts.run("delete", queue, rows.write(list(job_ids)))

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Operations`."""
        found, *outcomes = await self._scripts.run("get", queue, rows.write(list(job_ids)))
        return {status.id: status for _, status in rows.statuses(queue, found, outcomes)}

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """See `Operations`."""
        return rows.attempts(await self._scripts.run("attempts", queue, rows.write(job_id)))

    async def content(self, queue: str, job_id: str) -> tuple[bytes, bytes | None] | None:
        """Read a job's payload and checkpoint, for the web page."""
        keys = dict(zip(OF_A_QUEUE, self._keys.of_queue(queue), strict=True))
        seq = await self._transport.command("HGET", keys["ids"], job_id)
        if seq is None:
            return None
        payload = await self._transport.command("HGET", keys["payloads"], seq)
        return None if payload is None else (payload, await self._transport.command("HGET", keys["checkpoints"], seq))

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """See `Operations`.

        Numbers are times, and two queues on two servers may use the same one: a page does not end between two equal
        numbers, so that the next page misses no job.
        """
        queues = await self._scripts.queues() if wanted.queue is None else [wanted.queue]
        found = [pair for queue in queues for pair in await self._find(queue, wanted)]
        found.sort(key=lambda pair: pair[0])
        end = min(wanted.limit, len(found))
        while 0 < end < len(found) and found[end][0] == found[end - 1][0]:
            end += 1
        page = found[:end]
        return [status for _, status in page], page[-1][0] if len(page) >= wanted.limit else None

    async def _find(self, queue: str, wanted: JobFilter) -> list[tuple[int, JobStatus]]:
        found: list[tuple[int, JobStatus]] = []
        after: str | None = f"{wanted.after:016d}"
        while after is not None and len(found) < wanted.limit:
            request = {
                "after": after,
                "limit": wanted.limit - len(found),
                "max_reads": LOOKS,
                "state": wanted.state,
                "singleton_key": wanted.singleton_key,
                "task": wanted.task,
                "created_before": wanted.created_before and rows.micros_at(wanted.created_before),
                "created_after": wanted.created_after and rows.micros_at(wanted.created_after),
            }
            last, page, *outcomes = await self._scripts.run("find", queue, rows.write(request))
            found += rows.statuses(queue, page, outcomes)
            after = None if last is None else last.decode()
        return found

    async def queue_names(self) -> list[str]:
        """See `Operations`. Leaves out a queue whose jobs were all pruned and that no worker serves."""
        return await self._scripts.queues()

    async def stats(self, queue: str) -> QueueStats:
        """See `Operations`."""
        return rows.queue_stats(queue, await self._scripts.run("stats", queue))

    async def worker_seen(self, registration: Registration) -> None:
        """See `Operations`."""
        args = (self._shared.clock(), rows.write_registration(registration), *registration.queues)
        await self._transport.execute(script("worker_seen"), self._keys.workers, args)

    async def worker_stopped(self, registration: Registration) -> None:
        """See `Operations`."""
        await self._transport.command("HDEL", self._keys.workers[0], rows.write_registration(registration))

    async def workers(self) -> list[WorkerInfo]:
        """See `Operations`."""
        running: Counter[str] = Counter()
        for queue in await self._scripts.queues():
            running.update(dict(json.loads(await self._scripts.run("count_running", queue))))
        now, records = await self._worker_records()
        return list_workers(records, running, now)

    async def _worker_records(self) -> tuple[datetime, list[WorkerRecord]]:
        now, found = await self._transport.execute(script("workers"), self._keys.workers, (self._shared.clock(),))
        return rows.read_time(now), rows.worker_records(found)

    async def _prune_workers(self) -> None:
        """Remove old records. A worker seen again meanwhile is registered at its next heartbeat."""
        now, records = await self._worker_records()
        for record in records:
            if record.is_old(now):
                await self.worker_stopped(record.registration)

    async def prune(self, *, limit: int = 1000) -> int:
        """See `Operations`. Takes queues without jobs off the list of queues."""
        await self._prune_workers()
        count = 0
        for queue in await self._scripts.queues():
            if count < limit:
                request = {"limit": limit - count, "retention": RETENTION}
                pruned, left = await self._scripts.run("prune", queue, rows.write(request))
                count += pruned
                if left == 0:
                    await self._scripts.unlist(queue)
        return count

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """See `Operations`: SET NX PX, and a renewal that checks the owner first."""
        args = (candidate, max(1, min(round(ttl * 1000), LONGEST_MS)))
        elected = self._shared.elected
        leads = False
        try:
            leads = bool(await self._transport.execute(script("elect"), (self._keys.leader_key(role),), args))
        finally:
            (elected.add if leads else elected.discard)((role, candidate))
        return leads

    async def leads(self, role: str, candidate: str) -> bool:
        """See `Operations`. A leadership ends only by time, which the candidate watches."""
        return (role, candidate) in self._shared.elected

    async def resign(self, role: str, candidate: str) -> None:
        """See `Operations`. Waits about 2 seconds for a silent server; the leadership expires."""
        self._shared.elected.discard((role, candidate))
        with bounded(Deadline(min(current_deadline().left, RESIGN_SECONDS))):
            await self._transport.execute(script("resign"), (self._keys.leader_key(role),), (candidate,))

    async def warn(self, queue: str, job_id: str, *, task: str | None, reason: WarningReason, count: int) -> None:
        """See `Operations`."""
        await self._scripts.run(
            "warn", queue, rows.write({"id": job_id, "task": task, "reason": reason, "count": count})
        )

    async def close(self) -> None:
        """See `Operations`."""
        await self._transport.close()
        for listener in self._channels.all:
            await listener.close_here()
