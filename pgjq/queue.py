"""Queues: produce jobs, and process them with handlers.

`AsyncQueue` uses its caller's event loop. `Queue` blocks: it produces with the sync operations, and consumes on an
event loop in its own thread. A queue without a handler only produces. `Worker` serves several queues with one pool of
slots.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, ParamSpec, Self, TypeVar, Unpack, cast, overload

from pgjq.blocking import Mode, drive
from pgjq.client import AsyncClient, Client, without_connection
from pgjq.errors import PgjqError, UnsupportedError, ValidationError
from pgjq.event_bus import BusEventName, EventBus
from pgjq.ids import make_ids, process_name
from pgjq.job import EnqueueResult, Event, NewJob
from pgjq.job_settings import new_job
from pgjq.lease import visible_for
from pgjq.middleware import EnqueueChain, RunChain, check_middleware
from pgjq.options import Settings, check_int, check_queue, check_seconds
from pgjq.serde import JsonSerde
from pgjq.tasks.call import Call
from pgjq.tasks.decorator import Tasks, callers_names
from pgjq.tasks.dispatch import Dispatcher
from pgjq.tasks.schedule import declare, make_call
from pgjq.tasks.task import AsyncTask, Task, TaskBase
from pgjq.type_variables import Payload, Result
from pgjq.worker.event_order import EventOrder
from pgjq.worker.handler import Consumer, Target, style_of, target_of
from pgjq.worker.publisher import now
from pgjq.worker.service import OwnLoop, Runnable, Service, check_grace, check_one_storage, common_policy
from pgjq.worker.shutdown import AsyncStopRequest, StopRequest
from pgjq.worker.supervisor import Supervisor

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from pgjq.client import AnyJob
    from pgjq.declared_options import EnqueueOptions
    from pgjq.job import CancelResult, JobEventName, JobStatus
    from pgjq.lease import LeasePolicy
    from pgjq.schedules.schedule import Declared
    from pgjq.serde import Serde
    from pgjq.storage.base import Storage
    from pgjq.tasks.decorator import AsyncTaskDecorator, TaskDecorator, TaskOptions
    from pgjq.tasks.schedule import AsyncScheduleDecorator, ScheduleDecorator, ScheduleOptions
    from pgjq.worker.event_order import Gate
    from pgjq.worker.handler import Done
    from pgjq.worker.job import AsyncJob, Job

P = ParamSpec("P")
R = TypeVar("R")
Default = TypeVar("Default")


class QueueBase(Generic[Payload, Result]):
    """State and helpers that both queues share."""

    _mode: ClassVar[Mode]
    _task: ClassVar[type[TaskBase[Any, Any]]]
    _client: Any

    def __init__(
        self,
        name: str = "default",
        *,
        storage: Storage,
        payload_serde: Serde[Payload] | None = None,
        result_serde: Serde[Result] | None = None,
        worker_id: str | None = None,
        concurrency: int = 1,
        block_timeout: float | timedelta = 5.0,
        max_attempts: int | None = None,
        result_ttl: float | timedelta = 3600.0,
        visibility_timeout: float | timedelta = 30.0,
        lease_policy: LeasePolicy | None = None,
        grace: float | timedelta = 30.0,
        middleware: Sequence[Any] = (),
        logger: logging.Logger | None = None,
    ) -> None:
        self.name = check_queue(name)
        self.storage = storage
        self.payload_serde: Serde[Payload] = payload_serde or JsonSerde()
        self.result_serde: Serde[Result] = result_serde or JsonSerde()
        self.worker_id = worker_id or process_name()
        self.concurrency = check_int("concurrency", concurrency, 1, 10_000)
        self.block_timeout = check_seconds("block_timeout", block_timeout, above=0)
        self.max_attempts = None if max_attempts is None else check_int("max_attempts", max_attempts, 1)
        self.result_ttl = check_seconds("result_ttl", result_ttl, above=0)
        self.lease_policy = lease_policy or visible_for(
            check_seconds("visibility_timeout", visibility_timeout, above=0)
        )
        self.grace = check_seconds("grace", grace, at_least=0)
        self.bus = EventBus(logger)
        self._order = EventOrder(self.bus)
        self.handler: Callable[..., Any] | None = None
        self._tasks = Tasks(self, self._task)
        self.declared_schedules: list[Declared] = []  # A worker adds or updates them when it starts.
        self.middleware = check_middleware(middleware)
        self._outgoing = EnqueueChain(self.middleware)
        make = AsyncClient if self._mode == "async" else Client
        self._client = make(storage, payload_serde=self.payload_serde, result_serde=self.result_serde)
        self._client.usual = Settings(result_ttl=self.result_ttl, max_attempts=self.max_attempts)
        self._service: Service | None = None

    @overload
    def execute(
        self, handler: Callable[[AsyncJob[Payload]], Coroutine[Any, Any, Result]]
    ) -> Callable[[AsyncJob[Payload]], Coroutine[Any, Any, Result]]: ...
    @overload
    def execute(self, handler: Callable[[Job[Payload]], Result]) -> Callable[[Job[Payload]], Result]: ...
    @overload
    def execute(
        self, handler: Callable[[Job[Payload], Done[Result]], Any]
    ) -> Callable[[Job[Payload], Done[Result]], Any]: ...
    def execute(self, handler: Callable[..., Any]) -> Callable[..., Any]:
        """Register the handler: a function or coroutine function of (job), or a function of (job, done)."""
        style_of(handler)
        if self.handler is not None:
            raise ValidationError(f"queue {self.name!r} has a handler already: {self.handler!r}")
        self._check_not_started("register its handler")
        self.handler = handler
        return handler

    @property
    def tasks(self) -> Mapping[str, TaskBase[Any, Any]]:
        """The tasks by name, without their aliases."""
        return {task.name: task for task in self._tasks.by_name.values()}

    @property
    def tasks_by_name(self) -> Mapping[str, TaskBase[Any, Any]]:
        """The tasks by name and by alias."""
        return self._tasks.by_name

    @property
    def consumes(self) -> bool:
        """Whether the queue has a handler or tasks."""
        return self.handler is not None or bool(self._tasks)

    def _check_not_started(self, what: str) -> None:
        if self._service is not None:
            raise ValidationError(f"queue {self.name!r} has been started; {what} before")

    def _define(self, function: Any, names: Mapping[str, Any], options: Mapping[str, Any]) -> Any:
        """Make a task, or without a function return what makes one."""
        if function is None:
            return partial(self.define, names=names, options=options)
        return self.define(function, names, options)

    def define(self, function: Any, names: Mapping[str, Any], options: Mapping[str, Any]) -> TaskBase[Any, Any]:
        """Make a task of a function."""
        self._check_not_started("define its tasks")
        return self._tasks.add(function, names, options)

    def declare_schedule(self, call: Call, name: str | None, values: Mapping[str, Any]) -> None:
        """Have a worker of this queue add or update a schedule of a call when it starts."""
        self._check_not_started("declare its schedules")
        declared = declare(self, call, name, values)
        if any(declared.name == other.name for other in self.declared_schedules):
            raise ValidationError(f"queue {self.name!r} has a schedule {declared.name!r} already; pass name=")
        self.declared_schedules.append(declared)

    def _schedule(self, cron: str | None, name: str | None, names: Mapping[str, Any], options: Any) -> Any:
        def decorate(target: Any) -> Any:
            made, call = make_call(self, target, names)
            self.declare_schedule(call, name, {"cron": cron, **options})
            return made

        return decorate

    @overload
    def on(self, event: Literal["error"], callback: Callable[[BaseException], Any]) -> None: ...
    @overload
    def on(self, event: JobEventName, callback: Callable[[Event], Any]) -> None: ...
    def on(self, event: BusEventName, callback: Callable[[Any], Any]) -> None:
        """Call a callback with the events of this queue's jobs in this process."""
        self.bus.on(event, callback)

    def consumer(self, middleware: Sequence[Any] = ()) -> Consumer | None:
        """Return how this queue processes its jobs on this loop, or None without a handler and tasks."""
        if not self.consumes:
            return None
        chain = RunChain((*middleware, *self.middleware), self.storage)
        targets: Mapping[str | None, Target] = {}
        if self._tasks or self.handler is None:
            dispatcher = Dispatcher(self, chain.around)
            default, targets = dispatcher.unknown(), dispatcher.targets()
        else:
            default = chain.around(target_of(self.handler))
        return Consumer(self.name, default, self.payload_serde, self.result_serde, self.bus, self._order, targets)

    async def _enqueue_many(self, jobs: Iterable[AnyJob], connection: Any) -> list[EnqueueResult]:
        gate = self._order.begin_enqueue()
        try:
            results = await AsyncClient.enqueue_many(self._client, self.name, jobs, connection=connection)
            self._tell_queued(results, gate)
        finally:
            self._order.end_enqueue(gate)
        return results

    async def _through_middleware(self, jobs: Iterable[AnyJob]) -> list[NewJob | EnqueueResult]:
        """Return the jobs to enqueue, each with its id, and the answers of middleware that kept jobs out."""
        made = make_ids()
        new = [_new_job(job, made) for job in jobs]
        return await self._outgoing.send(new, self._mode)

    def _tell_queued(self, results: Iterable[EnqueueResult], gate: Gate | None) -> None:
        if self.bus.wants("queued"):
            for result in results:
                if result.status == "queued":
                    self._order.publish(Event("queued", self.name, result.id, now(), attempts=0), gate)

    def _tell_cancelled(self, job_id: str, result: CancelResult) -> None:
        if result.status == "cancelled" and self.bus.wants("cancelled"):
            self._order.publish(Event("cancelled", self.name, job_id, now()))

    def _serving(self) -> Service:
        if self._service is not None:
            raise PgjqError(f"queue {self.name!r} has been started already")
        self._service = Service([self], self.worker_id, self.concurrency, self.lease_policy, self.grace)
        return self._service

    def _check_runs(self) -> None:
        if not self.consumes:
            raise ValidationError(
                f"queue {self.name!r} has no handler to run: define a task with @queue.task, or register a handler with"
                " queue.execute(handler), first"
            )


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
            self._tell_queued([result], gate)
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

        def told(result: EnqueueResult) -> None:
            self._tell_queued([result], gate)
            self._order.end_enqueue(gate)

        try:
            return await self._client.request_result(self.name, job, timeout=timeout, told=told)
        finally:
            self._order.end_enqueue(gate)

    async def cancel(self, id: str, *, active: bool = False) -> CancelResult:
        """Cancel a job; see `AsyncClient.cancel`."""
        result = await AsyncClient.cancel(self._client, self.name, id, active=active)
        self._tell_cancelled(id, result)
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
        self._check_runs()
        asked = AsyncStopRequest()
        await self.start()
        try:
            await asked.wait()
        finally:
            await self.stop()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


# Its coroutines run in the sync mode, too, where they never suspend. A checker would lose the type variables of `Queue`
# in `blocking(AsyncQueue.enqueue)`, so the signatures stand in both classes.
_ASYNC: Any = AsyncQueue


class Queue(QueueBase[Payload, Result], Runnable):
    """Produce and consume jobs in threads. Each method is the one of `AsyncQueue`, and blocks."""

    _mode = "sync"
    _task = Task

    def enqueue(
        self, id: str | None, payload: Payload, *, connection: Any = None, **options: Unpack[EnqueueOptions]
    ) -> EnqueueResult[Result]:
        """Add a job, unless its id is taken; see `AsyncClient.enqueue`."""
        return drive(_ASYNC.enqueue(self, id, payload, connection=connection, **options))

    def send(self, payload: Payload, *, connection: Any = None, **options: Unpack[EnqueueOptions]) -> str:
        """Add a job with a generated id, and return that id."""
        return drive(_ASYNC.send(self, payload, connection=connection, **options))

    def enqueue_many(self, jobs: Iterable[AnyJob[Payload]], *, connection: Any = None) -> list[EnqueueResult[Result]]:
        """Add jobs in order, all of them or, on an error, none."""
        return drive(_ASYNC.enqueue_many(self, jobs, connection=connection))

    def enqueue_and_wait(
        self, id: str | None, payload: Payload, *, timeout: float | timedelta = 30.0, **options: Unpack[EnqueueOptions]
    ) -> Result:
        """Add or join a job and return its result; see `AsyncClient.enqueue_and_wait`."""
        return drive(_ASYNC.enqueue_and_wait(self, id, payload, timeout=timeout, **options))

    def cancel(self, id: str, *, active: bool = False) -> CancelResult:
        """Cancel a job; see `AsyncClient.cancel`."""
        return drive(_ASYNC.cancel(self, id, active=active))

    @overload
    def get_result(self, id: str) -> Result | None: ...
    @overload
    def get_result(self, id: str, default: Default) -> Result | Default: ...
    def get_result(self, id: str, default: Any = None) -> Any:
        """Return a completed job's result, or `default`."""
        return drive(_ASYNC.get_result(self, id, default))

    def get_status(self, id: str) -> JobStatus[Result] | None:
        """Return the status of a job, or None if there is no such job."""
        return drive(_ASYNC.get_status(self, id))

    _running: OwnLoop | None = None

    @property
    def client(self) -> Client:
        """A client with this queue's storage and serdes."""
        return self._client

    @overload
    def task(self, function: Callable[P, Coroutine[Any, Any, R]], /) -> Task[P, R, Coroutine[Any, Any, R]]: ...
    @overload
    def task(self, function: Callable[P, R], /) -> Task[P, R, R]: ...
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
    ) -> TaskDecorator: ...
    def task(self, function: Any = None, /, **options: Any) -> Any:
        """Make a task of a function, with its options: `@queue.task`, or `@queue.task(name=…, priority=5)`.

        Its jobs name it by `name`, or by the function's name; `aliases` are names that it had before. A worker puts
        jobs of a newer `version` back. `id` and `singleton_key` may be format strings over the arguments, or functions
        of them. Only exceptions of the types `retry_on` are retried, those of `discard_on` are not, and
        `backoff(error, attempt)` returns the seconds until the retry, or None for none. The other options are those of
        `enqueue`. Jobs of tasks are retried with exponential backoff, unless they or their queue's definition set
        `retry_backoff`.
        """
        return self._define(function, callers_names(), options)

    def schedule(
        self,
        cron: str | None = None,
        /,
        *,
        every: float | timedelta | None = None,
        name: str | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> ScheduleDecorator:
        """Run a function without arguments at times: `@queue.schedule("0 3 * * *", timezone="Europe/Berlin")`.

        The function becomes a task of its name, and the schedule has that name, too, unless `name` gives another one.
        Instead of a function it takes a task, or a call of one. The options are those of `create_schedule`. A worker of
        this queue adds the schedule when it starts, or updates it; it never deletes one.
        """
        return self._schedule(cron, name, callers_names(), {"every": every, **options})

    def start(self) -> None:
        """Start to consume on threads of this queue; without a handler, do nothing."""
        service = self._serving()
        try:
            self._running = OwnLoop(service)
        except BaseException:
            self._service = None
            raise

    def stop(self, grace: float | timedelta | None = None) -> None:
        """Stop consuming: running jobs get `grace` seconds, then unfinished ones are released."""
        grace = check_grace(grace)
        running, self._running, self._service = self._running, None, None
        if running is not None:
            running.stop(grace)

    def run(self) -> None:
        """Consume until SIGTERM or SIGINT; without a handler, raise ValidationError."""
        self._check_runs()
        super().run()


class Worker(Runnable):
    """Serve several queues with one pool of slots, on threads or in supervised `processes`.

    If the supervisor is killed, its processes end, the queues get an `error` event, and `run` raises it.

    Each claim begins with the next queue, and continues with the others if that one has too few jobs. So no queue
    starves behind the backlog of another. With `strict=True` each claim begins with the first queue, and a queue is
    served only while the queues before it have no job to run.
    """

    def __init__(
        self,
        *queues: Queue | AsyncQueue,
        concurrency: int = 10,
        processes: int = 1,
        grace: float | timedelta = 30.0,
        lease_policy: LeasePolicy | None = None,
        strict: bool = False,
        middleware: Sequence[Any] = (),
    ) -> None:
        check_one_storage(queues)
        self.queues = queues
        self.storage = queues[0].storage
        self.concurrency = check_int("concurrency", concurrency, 1, 10_000)
        self.processes = check_int("processes", processes, 1, 1_000)
        self.grace = check_seconds("grace", grace, at_least=0)
        self.lease_policy = lease_policy or common_policy(queues)
        self.strict = strict
        self.middleware = check_middleware(middleware)
        self._running: OwnLoop | Supervisor | None = None
        if self.processes > 1 and not self.storage.capabilities.processes:
            raise UnsupportedError(f"{type(self.storage).__name__} lives in one process; use processes=1")

    def start(self) -> None:
        """Start to consume."""
        if self._running is not None:
            raise PgjqError("this worker has been started already")
        if self.processes > 1:
            self.failure = None
            self._running = Supervisor(
                self.processes,
                self._be_one_process,
                self.queues[0].bus.logger,
                grace=self.grace,
                lost=self._lose_processes,
            )
        else:
            self._running = OwnLoop(self._service(self.queues[0].worker_id))

    def stop(self, grace: float | timedelta | None = None) -> None:
        """Stop consuming: running jobs get `grace` seconds, then unfinished ones are released."""
        grace = check_grace(grace)
        running, self._running = self._running, None
        if running is not None:
            running.stop(grace)

    def _lose_processes(self, error: PgjqError) -> None:
        """Report from a thread that no process serves the queues: by `error` events and in `run`."""
        self.failure = error
        for queue in self.queues:
            queue.bus.error(error, "serving stopped")

    def _service(self, worker_id: str) -> Service:
        return Service(
            self.queues,
            worker_id,
            self.concurrency,
            self.lease_policy,
            self.grace,
            strict=self.strict,
            middleware=self.middleware,
        )

    def _be_one_process(self, asked: StopRequest, grace: Callable[[], float | None]) -> None:
        """Run as one of several processes, under its own name."""
        running = OwnLoop(self._service(process_name()))
        try:
            asked.wait()
        finally:
            running.stop(grace())


def _new_job(job: Any, made: Iterator[str]) -> NewJob:
    """Return a job as a NewJob with an id, for middleware."""
    new: NewJob[Any]
    match job:
        case Call():
            new = job.new_job()
        case NewJob():
            new = cast("NewJob[Any]", job)
        case (job_id, payload):
            new = NewJob(job_id, payload)
        case _:
            raise ValidationError(f"a job must be a NewJob, a Call or a pair (id, payload), not {job!r:.80}")
    return new if new.id is not None else replace(new, id=next(made))
