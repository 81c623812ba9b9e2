"""The client: operations on jobs outside of a worker, for both modes from one source.

`AsyncClient` has the code; `Client` wraps its methods as blocking ones. A client is cheap and holds only its storage
and its serdes: share one, or create one per call.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Self, Unpack, cast

from pgjq.administration import FIND_LIMIT, AsyncAdministration, job_filter
from pgjq.blocking import Mode, blocking
from pgjq.definition import check_dead_letter
from pgjq.errors import JobNotFoundError, PolicyError, UnsupportedError, ValidationError
from pgjq.event_stream import AsyncEventStream, EventCallbacks, EventStream
from pgjq.ids import make_ids
from pgjq.job import EnqueueResult, JobStatus, NewJob, task_name
from pgjq.job_settings import new_job, settings
from pgjq.options import (
    DEFAULT_SETTINGS,
    Settings,
    Submission,
    check_headers,
    check_id,
    check_int,
    check_queue,
    check_seconds,
)
from pgjq.request_response import JobReference, ResultRequest, join_result, request_result
from pgjq.scheduling import AsyncScheduling, Scheduling
from pgjq.serde import JsonSerde, Serde, serialize_payload
from pgjq.tasks.call import Call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime, timedelta

    from pgjq.declared_options import EnqueueOptions
    from pgjq.event_bus import BusEventName
    from pgjq.job import CancelResult, QueueStats, State, WorkerInfo
    from pgjq.options import Headers
    from pgjq.storage.base import Storage

    AnyJob = NewJob | Call | tuple[str | None, Any]


class Page(list[JobStatus]):
    """Jobs that were found; `next` is the `after=` of the next page, or None on the last one."""

    next: int | None = None


class _Base(Scheduling):
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
        self.usual = DEFAULT_SETTINGS  # Settings of a job for which the caller sets none.
        self._ops = storage.operations(self._mode)
        self._ears: EventCallbacks | None = None
        self._opening: list[asyncio.Task[Any]] = []

    def _submissions(self, queue: str, jobs: Iterable[AnyJob]) -> tuple[list[Submission], bool]:
        """Check and serialise jobs; return them and whether all of their ids were generated here."""
        check_queue(queue)
        usual = self.usual
        known, made, given = {usual: usual}, make_ids(), 0
        ready: list[Submission] = []
        for job in jobs:
            job_id, payload, chosen, headers = _parts(job, usual, queue)
            given += job_id is not None
            job_id = next(made) if job_id is None else check_id(job_id)
            data = self._serialized(job, payload, job_id)
            # Jobs with equal settings share one object: storages recognise a uniform batch by identity.
            if chosen is not usual:
                chosen = known.setdefault(chosen, chosen)
                self._check_capability(chosen)
                if chosen.options.dead_letter is not None:
                    check_dead_letter(queue, chosen.options.dead_letter)
            ready.append(Submission(job_id, data, chosen, task_name(payload), headers))
        return ready, given == 0

    def _serialized(self, job: AnyJob, payload: Any, job_id: str) -> bytes:
        try:
            return serialize_payload(self.payload_serde, payload, job_id)
        except ValidationError:
            if isinstance(job, Call):
                job.explain(self.payload_serde)
            raise

    def _check_capability(self, chosen: Settings) -> None:
        """Raise UnsupportedError for settings that this storage cannot honour."""
        if self.storage.capabilities.definitions:
            return
        if chosen.singleton_seconds is not None or chosen.options.dead_letter is not None:
            raise UnsupportedError(
                f"{type(self.storage).__name__} has no definitions of queues, and so no dead letters and no slots of"
                " time (singleton_seconds, debounce)"
            )

    async def _listening(self) -> None:
        """Wait for event streams that are opening, so that they get this client's next events."""
        while self._opening:
            await asyncio.wait([self._opening.pop()])

    async def request_result(
        self,
        queue: str,
        job: AnyJob,
        *,
        timeout: float | timedelta,
        told: Callable[[EnqueueResult], None] = lambda _result: None,
    ) -> Any:
        """Implement `enqueue_and_wait`; `told` is called with the result of the enqueue."""
        patience = check_seconds("timeout", timeout, above=0)
        (submission,), made = self._submissions(queue, [job])
        payload = job[1] if isinstance(job, tuple) else job.payload
        await self._listening()
        result = await request_result(self._ops, ResultRequest(queue, submission, payload, made, patience), told)
        return None if result is None else self.result_serde.deserialize(result)

    def _decoded(self, status: JobStatus) -> JobStatus:
        if status.result is None:
            return status
        return replace(status, result=self.result_serde.deserialize(status.result))

    def _answered(self, result: EnqueueResult) -> EnqueueResult:
        if result.result is None:
            return result
        return result._replace(result=self.result_serde.deserialize(result.result))


class AsyncClient(AsyncAdministration, AsyncScheduling, _Base):
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

    async def get_status(self, queue: str, id: str) -> JobStatus | None:
        """Return the status of a job, or None if there is no such job."""
        found = (await self._ops.get(check_queue(queue), [check_id(id)])).get(id)
        return None if found is None else self._decoded(found)

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

    def subscribe(self, queue: str | None = None) -> AsyncEventStream:
        """Iterate over the events of one queue, or all: `async for event in client.subscribe("mail")`.

        Inside `async with client.subscribe() as events:` the stream gets every event from the start of the block.
        """
        self._need_loop()
        feed = AsyncEventStream(self._ops.subscribe(None if queue is None else check_queue(queue)))
        self._opening.append(feed.opening)
        return feed

    def on(self, event: BusEventName, callback: Callable[[Any], Any]) -> None:
        """Call a callback, or coroutine function, with each event of this name, from any process.

        `error` callbacks get exceptions: of callbacks, and of the listener's connection.
        """
        self._need_loop()
        self._ears = self._ears or EventCallbacks(self.subscribe())
        self._ears.on(event, callback)

    def _need_loop(self) -> None:
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise ValidationError("events are heard on an event loop: call this inside a coroutine") from error

    async def close(self) -> None:
        """Close the storage."""
        if self._ears is not None:
            await self._ears.close()
        await self._ops.close()
        self.storage.close()

    async def __aenter__(self) -> Self:
        """Return the client; the storage opens on first use."""
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Close the storage."""
        await self.close()


class Client(_Base):
    """Operations on a storage, for threads. Each method is the one of `AsyncClient`, and blocks."""

    _mode = "sync"

    enqueue = blocking(AsyncClient.enqueue)
    enqueue_many = blocking(AsyncClient.enqueue_many)
    enqueue_and_wait = blocking(AsyncClient.enqueue_and_wait)
    wait = blocking(AsyncClient.wait)
    get_status = blocking(AsyncClient.get_status)
    get_statuses = blocking(AsyncClient.get_statuses)
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

    def subscribe(self, queue: str | None = None) -> EventStream:
        """Iterate over the events of one queue, or of all: `for event in client.subscribe("mail")`.

        The stream is open from this call on. Use it in a `with`, or close it: while it is open, every change of a job
        also costs a published event.
        """
        return EventStream(self._ops.subscribe(None if queue is None else check_queue(queue)))

    def on(self, event: BusEventName, callback: Callable[[Any], Any]) -> None:
        """Call a callback on a thread of this client with each event of this name, from any process.

        `error` callbacks get exceptions: of callbacks, and of the listener's connection.
        """
        self._ears = self._ears or EventCallbacks(self.subscribe())
        self._ears.on(event, callback)

    def __enter__(self) -> Self:
        """Return the client; the storage opens on first use."""
        return self

    def __exit__(self, *exc: object) -> None:
        """Close the storage."""
        self.close()


def _parts(job: AnyJob, usual: Settings, queue: str) -> tuple[str | None, Any, Settings, Headers | None]:
    if isinstance(job, Call):
        if job.queue != queue:
            raise ValidationError(f"{job!r} cannot be enqueued in queue {queue!r}: its task is on another queue")
        return job.parts(usual)
    if isinstance(job, NewJob):
        headers = None if job.headers is None else check_headers(job.headers)
        return job.id, job.payload, settings(job, usual), headers
    match job:
        case (job_id, payload):
            return job_id, payload, usual, None
        case _:
            raise ValidationError(f"a job must be a NewJob, a Call or a pair (id, payload), not {job!r:.80}")


def without_connection(options: EnqueueOptions) -> EnqueueOptions:
    """Return the options of a call that waits for its job, which cannot have a connection."""
    given = cast("dict[str, Any]", options)
    if given.get("connection") is not None:
        raise ValidationError(
            "connection= and waiting exclude each other: the job is not there before that connection commits;"
            " enqueue, commit, and then enqueue_and_wait with the same id"
        )
    return cast("EnqueueOptions", {name: value for name, value in given.items() if name != "connection"})
