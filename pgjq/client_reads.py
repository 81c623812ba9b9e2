"""Reading part of the client: status, result and attempts of jobs; queues' counts; workers.

`AsyncClient` inherits from `AsyncReads`; `Client` wraps its methods as blocking ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pgjq.client_administration import FIND_LIMIT, Administration, job_filter
from pgjq.job import JobStatus
from pgjq.options import check_id, check_int, check_queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from pgjq.job import Attempt, QueueStats, State, WorkerInfo
    from pgjq.serde import Serde


class Page(list[JobStatus]):
    """Jobs that were found; `next` is the `after=` of the next page, or None on the last one."""

    next: int | None = None


class Reads(Administration):
    """Helpers that the sync and the async client share."""

    result_serde: Serde

    def _decoded(self, status: JobStatus) -> JobStatus:
        if status.result is None:
            return status
        return replace(status, result=self.result_serde.deserialize(status.result))


class AsyncReads(Reads):
    """Reads of the async client."""

    async def get_status(self, queue: str, id: str) -> JobStatus | None:
        """Return the status of a job, or None if there is no such job."""
        found = (await self._ops.get(check_queue(queue), [check_id(id)])).get(id)
        return None if found is None else self._decoded(found)

    async def get_attempts(self, queue: str, id: str) -> list[Attempt]:
        """Return the runs of a job that have ended, oldest first: how, when, on which worker.

        Twenty at most: the first, and the last nineteen. `retry` keeps them; a job that is enqueued again under the
        same id starts without any. An unknown id has none.
        """
        return await self._ops.attempts(check_queue(queue), check_id(id))

    async def get_statuses(self, queue: str, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Return the statuses of several jobs by id; unknown ids are left out."""
        found = await self._ops.get(check_queue(queue), [check_id(job_id) for job_id in ids])
        return {job_id: self._decoded(status) for job_id, status in found.items()}

    async def get_result(self, queue: str, id: str, default: Any = None) -> Any:
        """Return a completed job's result, or `default` if there is none or it has expired."""
        status = (await self._ops.get(check_queue(queue), [check_id(id)])).get(id)
        if status is None or status.state != "completed" or status.result is None:
            return default
        return self.result_serde.deserialize(status.result)

    async def find_jobs(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        singleton_key: str | None = None,
        task: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Page:
        """List jobs in the order of enqueueing; `page.next` is the `after` of the next call."""
        wanted = job_filter(
            queue,
            state=state,
            created_before=created_before,
            created_after=created_after,
            singleton_key=singleton_key,
            task=task,
        )
        check_int("after", after, 0, 2**63 - 1)
        check_int("limit", limit, 1, FIND_LIMIT)
        jobs, following = await self._ops.find(replace(wanted, after=after, limit=limit))
        page = Page(self._decoded(job) for job in jobs)
        page.next = following
        return page

    async def get_queue_stats(self, name: str) -> QueueStats:
        """Count a queue's jobs by state now."""
        return await self._ops.stats(check_queue(name))

    async def get_workers(self) -> Sequence[WorkerInfo]:
        """List live workers, then workers that fell silent within a day without stopping."""
        return await self._ops.workers()
