"""The client: everything one can do with jobs from outside a worker, in both colours from one source.

`AsyncClient` is the code; `Client` is a table of its methods, made blocking. A client is cheap and holds no state but
its storage and its serdes; share it or make one each time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pgjq.blocking import Colour, blocking
from pgjq.errors import JobNotFoundError, PolicyError, ValidationError
from pgjq.ids import make_ids
from pgjq.job import EnqueueResult, JobStatus, NewJob
from pgjq.options import (
    USUAL,
    JobFilter,
    Settings,
    Submission,
    check_id,
    check_key,
    check_queue,
    check_state,
    moment,
    new_job,
    settings,
    whole,
)
from pgjq.serde import JsonSerde, Serde, serialize_payload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

    from pgjq.job import CancelResult, QueueStats, State, WorkerInfo
    from pgjq.storage.base import Storage

FIND_LIMIT = 10_000


class Page(list[JobStatus]):
    """Jobs that were found; `next` is where to go on, as `after=`, or None when that was all."""

    next: int | None = None


class _Base:
    """What both colours hold."""

    _colour: ClassVar[Colour]

    def __init__(
        self, storage: Storage, *, payload_serde: Serde | None = None, result_serde: Serde | None = None
    ) -> None:
        if not hasattr(storage, "operations"):
            raise ValidationError(f'storage must be a storage, such as open_storage("postgresql://…"), not {storage!r}')
        self.storage = storage
        self.payload_serde: Serde = payload_serde or JsonSerde()
        self.result_serde: Serde = result_serde or JsonSerde()
        self.usual = USUAL  # What a job is enqueued with when its caller does not say.
        self._ops = storage.operations(self._colour)

    def _submissions(self, jobs: Iterable[NewJob | tuple[str | None, Any]]) -> tuple[list[Submission], bool]:
        """Check and serialise jobs, and say whether each of their ids was made here."""
        usual = self.usual
        known, made, given = {usual: usual}, make_ids(), 0
        ready: list[Submission] = []
        for job in jobs:
            job_id, payload, chosen = _parts(job, usual)
            given += job_id is not None
            job_id = next(made) if job_id is None else check_id(job_id)
            data = serialize_payload(self.payload_serde, payload, job_id)
            # Jobs with equal settings share one object: storages tell a uniform batch by that.
            if chosen is not usual:
                chosen = known.setdefault(chosen, chosen)
            ready.append(Submission(job_id, data, chosen))
        return ready, given == 0

    def _decoded(self, status: JobStatus) -> JobStatus:
        if status.result is None:
            return status
        return replace(status, result=self.result_serde.deserialize(status.result))

    def _answered(self, result: EnqueueResult) -> EnqueueResult:
        if result.result is None:
            return result
        return result._replace(result=self.result_serde.deserialize(result.result))


class AsyncClient(_Base):
    """Talk to a storage from coroutines."""

    _colour = "async"

    async def enqueue(
        self, queue: str, id: str | None, payload: Any, *, connection: Any = None, **options: Any
    ) -> EnqueueResult:
        """Add a job, unless its id is taken: then the answer says by what, and carries the result if there is one.

        `options` are those of `NewJob`. With `connection`, the job exists if and only if that connection's transaction
        commits.
        """
        check_queue(queue)
        jobs, made = self._submissions([new_job(id, payload, options) if options else (id, payload)])
        (result,) = await self._ops.enqueue(queue, jobs, made_ids=made, connection=connection)
        return self._answered(result)

    async def enqueue_many(
        self, queue: str, jobs: Iterable[NewJob | tuple[str | None, Any]], *, connection: Any = None
    ) -> list[EnqueueResult]:
        """Add jobs in their order, all of them or, on an error, none; duplicates are answered as in `enqueue`."""
        check_queue(queue)
        submissions, made = self._submissions(jobs)
        results = await self._ops.enqueue(queue, submissions, made_ids=made, connection=connection)
        return [self._answered(result) for result in results]

    async def get_status(self, queue: str, id: str) -> JobStatus | None:
        """Tell what is known of a job, or None."""
        found = (await self._ops.get(check_queue(queue), [check_id(id)])).get(id)
        return None if found is None else self._decoded(found)

    async def get_statuses(self, queue: str, ids: Iterable[str]) -> dict[str, JobStatus]:
        """Tell what is known of several jobs, by their ids; those that are unknown are not in the answer."""
        found = await self._ops.get(check_queue(queue), [check_id(job_id) for job_id in ids])
        return {job_id: self._decoded(status) for job_id, status in found.items()}

    async def get_result(self, queue: str, id: str, default: Any = None) -> Any:
        """Return a completed job's result; `default` when there is none, or when its time to live has passed."""
        status = (await self._ops.get(check_queue(queue), [check_id(id)])).get(id)
        if status is None or status.state != "completed" or status.result is None:
            return default
        return self.result_serde.deserialize(status.result)

    async def cancel(self, queue: str, id: str, *, active: bool = False) -> CancelResult:
        """Withdraw a job. A running one is left alone, or asked to end if `active`; the answer is "processing" then."""
        return await self._ops.cancel(check_queue(queue), check_id(id), active=active)

    async def retry(self, queue: str, id: str) -> JobStatus:
        """Put a failed or cancelled job back in its place, with all its attempts."""
        status = await self._ops.retry(check_queue(queue), check_id(id))
        if status is None:
            message = f"there is no job {id!r} in queue {queue!r}"
            raise JobNotFoundError(message)
        if status.state == "completed":
            message = f"job {id!r} in queue {queue!r} has completed; enqueue it again once its result has expired"
            raise PolicyError(message)
        return self._decoded(status)

    async def delete_job(self, queue: str, id: str) -> bool:
        """Forget a job that is not running, and its id; say whether there was one."""
        return await self._ops.delete(check_queue(queue), [check_id(id)]) > 0

    async def find_jobs(
        self,
        queue: str | None = None,
        *,
        state: State | None = None,
        created_before: datetime | None = None,
        created_after: datetime | None = None,
        singleton_key: str | None = None,
        after: int = 0,
        limit: int = 100,
    ) -> Page:
        """List jobs in the order they were enqueued; `page.next` is the `after` of the next call."""
        jobs, following = await self._ops.find(
            JobFilter(
                queue=None if queue is None else check_queue(queue),
                state=None if state is None else check_state(state),
                created_before=None if created_before is None else moment("created_before", created_before),
                created_after=None if created_after is None else moment("created_after", created_after),
                singleton_key=None if singleton_key is None else check_key(singleton_key),
                after=whole("after", after, 0, 2**63 - 1),
                limit=whole("limit", limit, 1, FIND_LIMIT),
            )
        )
        page = Page(self._decoded(job) for job in jobs)
        page.next = following
        return page

    async def get_queue_stats(self, name: str) -> QueueStats:
        """Count a queue's jobs by state, now."""
        return await self._ops.stats(check_queue(name))

    async def get_workers(self) -> Sequence[WorkerInfo]:
        """List the workers that were seen lately."""
        return await self._ops.workers()

    async def close(self) -> None:
        """Close the storage."""
        await self._ops.close()
        self.storage.close()

    async def __aenter__(self) -> Self:
        """Open nothing: a storage opens on first use."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the storage."""
        await self.close()


class Client(_Base):
    """Talk to a storage from threads. Each method is `AsyncClient`'s, and blocks."""

    _colour = "blocking"

    enqueue = blocking(AsyncClient.enqueue)
    enqueue_many = blocking(AsyncClient.enqueue_many)
    get_status = blocking(AsyncClient.get_status)
    get_statuses = blocking(AsyncClient.get_statuses)
    get_result = blocking(AsyncClient.get_result)
    cancel = blocking(AsyncClient.cancel)
    retry = blocking(AsyncClient.retry)
    delete_job = blocking(AsyncClient.delete_job)
    find_jobs = blocking(AsyncClient.find_jobs)
    get_queue_stats = blocking(AsyncClient.get_queue_stats)
    get_workers = blocking(AsyncClient.get_workers)
    close = blocking(AsyncClient.close)

    def __enter__(self) -> Self:
        """Open nothing: a storage opens on first use."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the storage."""
        self.close()


def _parts(job: NewJob | tuple[str | None, Any], usual: Settings) -> tuple[str | None, Any, Settings]:
    if isinstance(job, NewJob):
        return job.id, job.payload, settings(job, usual)
    match job:
        case (job_id, payload):
            return job_id, payload, usual
        case _:
            raise ValidationError(f"a job must be a NewJob or a pair (id, payload), not {job!r:.80}")
