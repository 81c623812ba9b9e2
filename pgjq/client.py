"""The client: operations on jobs outside of a worker, for both modes from one source.

`AsyncClient` has the code; `Client` wraps its methods as blocking ones. A client is cheap and holds only its storage
and its serdes: share one, or create one per call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack

from pgjq.blocking import Mode, blocking
from pgjq.client_administration import AsyncAdministration
from pgjq.client_events import AsyncEvents, BlockingEvents, Events
from pgjq.client_reads import AsyncReads, Reads
from pgjq.client_schedules import AsyncScheduling, Scheduling
from pgjq.definition import check_dead_letter
from pgjq.errors import JobNotFoundError, PolicyError, UnsupportedError, ValidationError
from pgjq.ids import make_ids
from pgjq.job import EnqueueResult, JobStatus, NewJob, task_name
from pgjq.job_settings import new_job, settings, without_connection
from pgjq.options import (
    DEFAULT_SETTINGS,
    Settings,
    Submission,
    check_headers,
    check_id,
    check_queue,
    check_seconds,
)
from pgjq.request_response import JobReference, ResultRequest, join_result, request_result
from pgjq.serde import JsonSerde, Serde, serialize_payload
from pgjq.tasks.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from datetime import timedelta

    from pgjq.declared_options import EnqueueOptions
    from pgjq.job import CancelResult
    from pgjq.storage.base import Storage
    from pgjq.tasks.call import Parts
    from pgjq.type_variables import Payload

    AnyJob = NewJob[Payload] | Call | tuple[str | None, Payload]


class _Base(Reads, Scheduling, Events):
    """State and helpers that both clients share."""

    _mode: ClassVar[Mode]

    def __init__(
        self, storage: Storage, *, payload_serde: Serde | None = None, result_serde: Serde | None = None
    ) -> None:
        if not hasattr(storage, "operations"):
            raise ValidationError(f'storage must be a storage, such as open_storage("postgresql://…"), not {storage!r}')
        self.storage = storage
        self.payload_serde: Serde = payload_serde or JsonSerde()
        self.result_serde: Serde = result_serde or JsonSerde()
        self.defaults = DEFAULT_SETTINGS  # Settings of a job for which the caller sets none.
        # Changes jobs before they are enqueued: a function of the queue's name and of jobs that go there together.
        self.outgoing: Callable[[str, Iterable[AnyJob]], Iterable[AnyJob]] | None = None
        self._ops = storage.operations(self._mode)
        self._opening = []

    def _submissions(self, queue: str, jobs: Iterable[AnyJob]) -> tuple[list[Submission], bool]:
        """Check and serialise jobs; return them and whether all of their ids were generated here."""
        check_queue(queue)
        if self.outgoing is not None:
            jobs = self.outgoing(queue, jobs)
        defaults = self.defaults
        known, made, given = {defaults: defaults}, make_ids(), 0
        checked, serde = defaults, self.payload_serde  # `checked`: the settings of the job before.
        ready: list[Submission] = []
        for job in jobs:
            job_id, payload, chosen, headers, task = _parts(job, defaults, queue)
            given += job_id is not None
            job_id = next(made) if job_id is None else check_id(job_id)
            try:
                data = serialize_payload(serde, payload, job_id)
            except ValidationError:
                if isinstance(job, Call):
                    job.explain(serde)
                raise
            # Jobs with equal settings share one object: storages recognise a uniform batch by identity.
            if chosen is not defaults and chosen is not checked:
                checked = chosen = known.setdefault(chosen, chosen)
                self._check_capability(chosen)
                if chosen.options.dead_letter is not None:
                    check_dead_letter(queue, chosen.options.dead_letter)
            ready.append(Submission(job_id, data, chosen, task, headers))
        return ready, given == 0

    def _check_capability(self, chosen: Settings) -> None:
        """Raise UnsupportedError for settings that this storage cannot honour."""
        if self.storage.capabilities.definitions:
            return
        if chosen.singleton_seconds is not None or chosen.options.dead_letter is not None:
            name = type(self.storage).__name__
            lacks = "no dead letters and no slots of time (singleton_seconds, debounce)"
            raise UnsupportedError(f"{name} has no definitions of queues, and so {lacks}")

    async def request_result(
        self,
        queue: str,
        job: AnyJob,
        *,
        timeout: float | timedelta,
        publish_result: Callable[[EnqueueResult], None] = lambda _result: None,
    ) -> Any:
        """Implement `enqueue_and_wait`; `publish_result` is called with the result of the enqueue."""
        patience = check_seconds("timeout", timeout, above=0)
        (submission,), made = self._submissions(queue, [job])
        payload = job[1] if isinstance(job, tuple) else job.payload
        await self._listening()
        request = ResultRequest(queue, submission, payload, made, patience)
        result = await request_result(self._ops, request, publish_result)
        return None if result is None else self.result_serde.deserialize(result)

    def _answered(self, result: EnqueueResult) -> EnqueueResult:
        if result.result is None:
            return result
        return result._replace(result=self.result_serde.deserialize(result.result))


class AsyncClient(AsyncReads, AsyncAdministration, AsyncScheduling, AsyncEvents, _Base):
    """Operations on a storage, for coroutines."""

    _mode = "async"

    async def enqueue(
        self, queue: str, id: str | None, payload: Any, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueueResult:
        """Add a job; if its id is taken, return the existing job's state, and its result if any.

        `options` are those of `NewJob`. With `connection`, the job exists if and only if that connection's transaction
        commits.
        """
        jobs, made = self._submissions(queue, [new_job(id, payload, options) if options else (id, payload)])
        await self._listening()
        (result,) = await self._ops.enqueue(queue, jobs, generated_ids=made, connection=connection)
        return self._answered(result)

    async def enqueue_many(self, queue: str, jobs: Iterable[AnyJob], *, connection: Any = None) -> list[EnqueueResult]:
        """Add jobs in order, all of them or, on an error, none; duplicates as in `enqueue`."""
        submissions, made = self._submissions(queue, jobs)
        await self._listening()
        results = await self._ops.enqueue(queue, submissions, generated_ids=made, connection=connection)
        return [self._answered(result) for result in results]

    async def enqueue_and_wait(
        self,
        queue: str,
        id: str | None,
        payload: Any,
        *,
        timeout: float | timedelta = 30.0,
        **options: Unpack[EnqueueOptions],
    ) -> Any:
        """Add a job, or join the one with this id, and return its result; a stored result at once.

        Raises `JobFailedError` if the job failed and `JobCancelledError` if it was cancelled. Without a result within
        `timeout` this raises `pgjq.TimeoutError`, and the job continues.
        """
        options = without_connection(options)
        job: AnyJob = new_job(id, payload, options) if options else (id, payload)
        return await self.request_result(queue, job, timeout=timeout)

    async def wait(self, queue: str, id: str, timeout: float | timedelta = 30.0) -> Any:
        """Wait for the end of a job that exists, and return its result, as `enqueue_and_wait` does.

        JobNotFoundError if there is no such job.
        """
        patience = check_seconds("timeout", timeout, above=0)
        await self._listening()
        result = await join_result(self._ops, JobReference(check_queue(queue), check_id(id), patience))
        return None if result is None else self.result_serde.deserialize(result)

    async def cancel(self, queue: str, id: str, *, active: bool = False) -> CancelResult:
        """Cancel a job. A running job continues, or with `active` is asked to end.

        In both cases the result's `status` is "processing".
        """
        await self._listening()
        return await self._ops.cancel(check_queue(queue), check_id(id), active=active)

    async def retry(self, queue: str, id: str) -> JobStatus:
        """Queue a failed or cancelled job again at its old position, with all its attempts."""
        await self._listening()
        status = await self._ops.retry(check_queue(queue), check_id(id))
        if status is None:
            message = f"there is no job {id!r} in queue {queue!r}"
            raise JobNotFoundError(message)
        if status.state == "completed":
            message = f"job {id!r} in queue {queue!r} has completed; enqueue it again once its result has expired"
            raise PolicyError(message)
        return self._decoded(status)

    async def delete_job(self, queue: str, id: str) -> bool:
        """Delete a job that is not running, and free its id; return whether there was one."""
        return await self._ops.delete(check_queue(queue), [check_id(id)]) > 0

    async def close(self) -> None:
        """Close the storage."""
        if self._callbacks is not None:
            await self._callbacks.close()
        await self._ops.close()
        self.storage.close()

    async def __aenter__(self) -> Self:
        """Return the client; the storage opens on first use."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the storage."""
        await self.close()


class Client(BlockingEvents, _Base):
    """Operations on a storage, for threads. Each method is the one of `AsyncClient`, and blocks."""

    _mode = "sync"

    enqueue = blocking(AsyncClient.enqueue)
    enqueue_many = blocking(AsyncClient.enqueue_many)
    enqueue_and_wait = blocking(AsyncClient.enqueue_and_wait)
    wait = blocking(AsyncClient.wait)
    get_status = blocking(AsyncClient.get_status)
    get_statuses = blocking(AsyncClient.get_statuses)
    get_attempts = blocking(AsyncClient.get_attempts)
    get_result = blocking(AsyncClient.get_result)
    cancel = blocking(AsyncClient.cancel)
    retry = blocking(AsyncClient.retry)
    delete_job = blocking(AsyncClient.delete_job)
    find_jobs = blocking(AsyncClient.find_jobs)
    get_queue_stats = blocking(AsyncClient.get_queue_stats)
    create_queue = blocking(AsyncClient.create_queue)
    update_queue = blocking(AsyncClient.update_queue)
    delete_queue = blocking(AsyncClient.delete_queue)
    get_queues = blocking(AsyncClient.get_queues)
    get_queue = blocking(AsyncClient.get_queue)
    pause_queue = blocking(AsyncClient.pause_queue)
    resume_queue = blocking(AsyncClient.resume_queue)
    get_blocked_keys = blocking(AsyncClient.get_blocked_keys)
    redrive = blocking(AsyncClient.redrive)
    release = blocking(AsyncClient.release)
    reschedule = blocking(AsyncClient.reschedule)
    retry_many = blocking(AsyncClient.retry_many)
    cancel_many = blocking(AsyncClient.cancel_many)
    delete_many = blocking(AsyncClient.delete_many)
    get_workers = blocking(AsyncClient.get_workers)
    create_schedule = blocking(AsyncClient.create_schedule)
    update_schedule = blocking(AsyncClient.update_schedule)
    pause_schedule = blocking(AsyncClient.pause_schedule)
    resume_schedule = blocking(AsyncClient.resume_schedule)
    delete_schedule = blocking(AsyncClient.delete_schedule)
    trigger_schedule = blocking(AsyncClient.trigger_schedule)
    backfill_schedule = blocking(AsyncClient.backfill_schedule)
    get_schedule = blocking(AsyncClient.get_schedule)
    get_schedules = blocking(AsyncClient.get_schedules)
    preview_schedule = blocking(AsyncClient.preview_schedule)
    get_schedule_ticks = blocking(AsyncClient.get_schedule_ticks)
    close = blocking(AsyncClient.close)

    def __enter__(self) -> Self:
        """Return the client; the storage opens on first use."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the storage."""
        self.close()


def _parts(job: AnyJob, defaults: Settings, queue: str) -> Parts:
    if type(job) is tuple and len(job) == 2:  # noqa: PLR2004  (first, because large batches are made of pairs)
        return job[0], job[1], defaults, None, task_name(job[1])
    if isinstance(job, Call):
        if job.task.queue.name != queue:
            raise ValidationError(f"{job!r} cannot be enqueued in queue {queue!r}: its task is on another queue")
        return job.parts(defaults)
    if isinstance(job, NewJob):
        headers = None if job.headers is None else check_headers(job.headers)
        return job.id, job.payload, settings(job, defaults), headers, task_name(job.payload)
    match job:
        case (job_id, payload):
            return job_id, payload, defaults, None, task_name(payload)
        case _:
            raise ValidationError(f"a job must be a NewJob, a Call or a pair (id, payload), not {job!r:.80}")
