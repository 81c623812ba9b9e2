"""Administration part of the client: queue definitions, and commands on one or many jobs.

`AsyncClient` inherits from `AsyncAdministration`; `Client` wraps its methods as blocking ones.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict, Unpack, cast

from pgjq.definition import check_changes, define
from pgjq.errors import JobNotFoundError, PolicyError, UnsupportedError, ValidationError
from pgjq.options import (
    SHORT_MAX,
    JobFilter,
    check_datetime,
    check_id,
    check_int,
    check_key,
    check_queue,
    check_state,
    check_task,
)
from pgjq.storage import policy_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from datetime import datetime

    from pgjq.declared_options import QueueChanges, QueueOptions
    from pgjq.job import JobStatus, QueueInfo, State
    from pgjq.storage.base import Definitions, Operations, Storage

BATCH = 1000
FIND_LIMIT = 10_000


class JobCriteria(TypedDict, total=False):
    """Criteria of `find_jobs` that commands on many jobs take as well, beside queue and state."""

    created_before: datetime | None
    created_after: datetime | None
    singleton_key: str | None


class Administration:
    """Helpers that the sync and the async client share."""

    storage: Storage
    _ops: Operations

    async def _info(self, name: str) -> QueueInfo:
        found = await self._definitions().queues(name)
        if not found:
            raise policy_errors.no_queue(name)
        return found[0]

    async def _for_each(
        self, act: Callable[..., Any], progress: Callable[[int], Any] | None, batch: int, wanted: JobFilter
    ) -> int:
        if wanted == JobFilter():
            raise ValidationError("say which jobs: a queue, a state, a task, a key or an age")
        check_int("batch", batch, 1, FIND_LIMIT)
        done = 0
        async for page in self._pages(wanted, batch):
            by_queue: defaultdict[str, list[str]] = defaultdict(list)
            for job in page:
                by_queue[job.queue].append(job.id)
            for queue, ids in by_queue.items():
                done += await act(queue, ids)
            if progress is not None and inspect.isawaitable(answer := progress(done)):
                await answer
        return done

    async def _pages(self, wanted: JobFilter, batch: int) -> AsyncIterator[Sequence[JobStatus]]:
        """Yield the jobs that match a filter, page by page."""
        after: int | None = wanted.after
        while after is not None:
            page, after = await self._ops.find(replace(wanted, after=after, limit=batch))
            if page:
                yield page

    def _definitions(self) -> Definitions:
        if not self.storage.capabilities.definitions:
            raise UnsupportedError(
                f"{type(self.storage).__name__} has no definitions of queues; docs/storages.md says which have"
            )
        return cast("Definitions", self._ops)


class AsyncAdministration(Administration):
    """Queue definitions and bulk commands of the async client."""

    async def create_queue(self, name: str, **options: Unpack[QueueOptions]) -> QueueInfo:
        """Define a queue and return its effective values; every process may call it at every start.

        An existing definition stays unchanged: use `update_queue`. For an option that is not set, the worker's policy
        applies, then the default: 2 retries, no delay, 15 minutes per attempt, 14 days queued, records kept 7 days.
        """
        definition = define(check_queue(name), options)
        await self._definitions().create_queue(name, definition)
        return await self._info(name)

    async def update_queue(self, name: str, **options: Unpack[QueueChanges]) -> QueueInfo:
        """Change options of a definition for future jobs; None unsets one.

        The policy and `partition` cannot change.
        """
        changes = check_changes(check_queue(name), options)
        await self._definitions().update_queue(name, changes)
        return await self._info(name)

    async def delete_queue(self, name: str) -> None:
        """Delete a queue and all its jobs, including running ones."""
        await self._definitions().delete_queue(check_queue(name))

    async def get_queues(self) -> list[QueueInfo]:
        """List all queues by name, including those created by their first job."""
        return await self._definitions().queues()

    async def get_queue(self, name: str) -> QueueInfo:
        """Return a queue's effective definition, and the statistics that a worker counted last."""
        return await self._info(check_queue(name))

    async def pause_queue(self, name: str) -> None:
        """Stop workers from claiming jobs of a queue. Running jobs and enqueueing continue."""
        await self._definitions().pause(check_queue(name), paused=True)

    async def resume_queue(self, name: str) -> None:
        """Let workers claim jobs of a queue again."""
        await self._definitions().pause(check_queue(name), paused=False)

    async def get_blocked_keys(self, name: str) -> list[str]:
        """List the keys of a `key_strict_fifo` queue that failed jobs block.

        A key is blocked until its failed job is retried or deleted.
        """
        return await self._definitions().blocked_keys(check_queue(name))

    async def redrive(self, queue: str, *, limit: int = 1000, to: str | None = None) -> int:
        """Send up to `limit` dead letters back to their source queue, or to `to`; return the count."""
        check_int("limit", limit, 1, 2**31 - 1)
        return await self._definitions().redrive(
            check_queue(queue), limit=limit, to=None if to is None else check_queue(to)
        )

    async def release(self, queue: str, id: str) -> bool:
        """Take a running job away from its worker; return whether it was running.

        The attempt does not count. The job is queued again at once, and the outcome of the run is refused: use it for a
        run that hangs. A handler in a thread goes on until it sees its signal.
        """
        return await self._ops.release(check_queue(queue), [check_id(id)]) > 0

    async def reschedule(
        self, queue: str, id: str, *, run_at: datetime | None = None, priority: int | None = None
    ) -> JobStatus:
        """Change when a waiting job may run, or its priority; return the job as it is then.

        A time in the past means now. JobNotFoundError without such a job, PolicyError if it does not wait.
        """
        if run_at is None and priority is None:
            raise ValidationError("say what to change: run_at, priority or both")
        status = await self._ops.reschedule(
            check_queue(queue),
            check_id(id),
            run_at=None if run_at is None else check_datetime("run_at", run_at),
            priority=None if priority is None else check_int("priority", priority, -SHORT_MAX),
        )
        if status is None:
            raise JobNotFoundError(f"there is no job {id!r} in queue {queue!r}")
        if status.state not in ("queued", "failing"):
            raise PolicyError(f"job {id!r} in queue {queue!r} does not wait: it is {status.state}")
        return status

    async def retry_many(
        self,
        queue: str | None = None,
        *,
        state: State = "failed",
        progress: Callable[[int], Any] | None = None,
        batch: int = BATCH,
        **criteria: Unpack[JobCriteria],
    ) -> int:
        """Retry all ended jobs that `find_jobs` would find; return the number of jobs queued again.

        Jobs for which the policy has no free slot stay unchanged. `progress` is called after each batch with the
        running total.
        """
        return await self._for_each(self._ops.retry_many, progress, batch, job_filter(queue, state=state, **criteria))

    async def cancel_many(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        progress: Callable[[int], Any] | None = None,
        batch: int = BATCH,
        **criteria: Unpack[JobCriteria],
    ) -> int:
        """Cancel all jobs that `find_jobs` would find and that have not started; return the count."""
        wanted = job_filter(queue, state=state, **criteria)
        return await self._for_each(self._ops.cancel_many, progress, batch, wanted)

    async def delete_many(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        progress: Callable[[int], Any] | None = None,
        batch: int = BATCH,
        **criteria: Unpack[JobCriteria],
    ) -> int:
        """Delete all jobs that `find_jobs` would find and that are not running; return the count."""
        return await self._for_each(self._ops.delete, progress, batch, job_filter(queue, state=state, **criteria))


def job_filter(
    queue: str | None,
    *,
    state: State | None = None,
    created_before: datetime | None = None,
    created_after: datetime | None = None,
    singleton_key: str | None = None,
    task: str | None = None,
) -> JobFilter:
    """Validate search criteria and return them as a filter."""
    return JobFilter(
        queue=None if queue is None else check_queue(queue),
        state=None if state is None else check_state(state),
        created_before=None if created_before is None else check_datetime("created_before", created_before),
        created_after=None if created_after is None else check_datetime("created_after", created_after),
        singleton_key=None if singleton_key is None else check_key(singleton_key),
        task=None if task is None else check_task(task),
    )
