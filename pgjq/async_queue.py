"""`AsyncQueue`: produce and consume jobs in coroutines, on the caller's event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack, cast, overload

from pgjq.client import AsyncClient
from pgjq.job import EnqueueResult, NewJob
from pgjq.job_settings import new_job, without_connection
from pgjq.queue_base import QueueBase
from pgjq.tasks.decorator import callers_names
from pgjq.tasks.task import AsyncTask
from pgjq.type_variables import Payload, Result
from pgjq.worker.engine_runner import BLOCKED_SECONDS, check_grace
from pgjq.worker.shutdown import AsyncStopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from datetime import timedelta

    from pgjq.client import AnyJob
    from pgjq.declared_options import EnqueueOptions
    from pgjq.job import CancelResult, JobStatus
    from pgjq.tasks.decorator import AsyncTaskDecorator, TaskOptions
    from pgjq.tasks.schedule import AsyncScheduleDecorator, ScheduleOptions

P = ParamSpec("P")
R = TypeVar("R")
Default = TypeVar("Default")


class AsyncQueue(QueueBase[Payload, Result]):
    """Produce and consume jobs in coroutines."""

    _mode = "async"
    _task = AsyncTask

    @property
    def client(self) -> AsyncClient:
        """A client with this queue's storage and serdes."""
        return self._client

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> AsyncTask[P, R, R]: ...
    @overload
    def task(
        self,
        function: None = None,
        /,
        *,
        name: str | None = None,
        version: int = 1,
        aliases: Sequence[str] = (),
        **options: Unpack[TaskOptions],
    ) -> AsyncTaskDecorator: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a task of a function; see `Queue.task`."""
        return self._define(function, callers_names(), options)

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        every: float | timedelta | None = None,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> AsyncScheduleDecorator:
        """Run a function without arguments at times; see `Queue.schedule`."""
        return self._schedule(cron, name, callers_names(), {"every": every, **options})

    async def enqueue(
        self, id: str | None, payload: Payload, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueueResult[Result]:
        """Add a job, unless its id is taken; see `AsyncClient.enqueue`."""
        if self._outgoing:
            job = new_job(id, payload, options)
            return (await AsyncQueue.enqueue_many(self, [job], connection=connection))[0]
        gate = self._order.begin_enqueue()
        try:
            result = await AsyncClient.enqueue(self._client, self.name, id, payload, connection=connection, **options)
            self._publish_queued([result], gate)
        finally:
            self._order.end_enqueue(gate)
        return result

    async def send(self, payload: Payload, *, connection: Any = None, **options: Unpack[EnqueueOptions]) -> str:
        """Add a job with a generated id, and return that id."""
        return (await AsyncQueue.enqueue(self, None, payload, connection=connection, **options)).id

    async def enqueue_many(
        self, jobs: Iterable[AnyJob[Payload]], *, connection: Any = None
    ) -> list[EnqueueResult[Result]]:
        """Add jobs in order, all of them or, on an error, none."""
        if not self._outgoing:
            return await self._enqueue_many(jobs, connection)
        passed = await self._through_middleware(jobs)
        results = iter(await self._enqueue_many([job for job in passed if isinstance(job, NewJob)], connection))
        return [next(results) if isinstance(job, NewJob) else job for job in passed]

    async def enqueue_and_wait(
        self, id: str | None, payload: Payload, *, timeout: float | timedelta = 30.0, **options: Unpack[EnqueueOptions]
    ) -> Result:
        """Add or join a job and return its result; see `AsyncClient.enqueue_and_wait`."""
        job: AnyJob = new_job(id, payload, without_connection(options)) if options or self._outgoing else (id, payload)
        if self._outgoing:
            (passed,) = await self._through_middleware([job])
            if isinstance(passed, EnqueueResult):
                return cast("Result", passed.result)
            job = passed
        gate = self._order.begin_enqueue()

        def publish_result(result: EnqueueResult) -> None:
            self._publish_queued([result], gate)
            self._order.end_enqueue(gate)

        try:
            return await self._client.request_result(self.name, job, timeout=timeout, publish_result=publish_result)
        finally:
            self._order.end_enqueue(gate)

    async def cancel(self, id: str, *, active: bool = False) -> CancelResult:
        """Cancel a job; see `AsyncClient.cancel`."""
        result = await AsyncClient.cancel(self._client, self.name, id, active=active)
        self._publish_cancelled(id, result)
        return result

    @overload
    async def get_result(self, id: str) -> Result | None: ...
    @overload
    async def get_result(self, id: str, default: Default) -> Result | Default: ...
    async def get_result(self, id: str, default: Any = None) -> Any:
        """Return a completed job's result, or `default`."""
        return await AsyncClient.get_result(self._client, self.name, id, default)

    async def get_status(self, id: str) -> JobStatus[Result] | None:
        """Return the status of a job, or None if there is no such job."""
        return await AsyncClient.get_status(self._client, self.name, id)

    async def start(self) -> None:
        """Start to consume on this event loop; without a handler, do nothing."""
        service = self._serving()
        try:
            await service.start()
        except BaseException:
            self._service = None
            raise

    async def stop(self, grace: float | timedelta | None = None) -> None:
        """Stop consuming: running jobs get `grace` seconds, then unfinished ones are released."""
        grace = check_grace(grace)
        service, self._service = self._service, None
        if service is not None:
            await service.stop(grace)

    async def run(self) -> None:
        """Consume until SIGTERM or SIGINT; without a handler, raise ValidationError."""
        self.check_runs()
        asked = AsyncStopRequest()
        await self.start()
        service = self._service
        assert service is not None  # noqa: S101  (`start` has set it)
        with asked.guarded(service.is_blocked, service.grace(None) + BLOCKED_SECONDS, service.release_all):
            try:
                await asked.wait()
            finally:
                await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()
