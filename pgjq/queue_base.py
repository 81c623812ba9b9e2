"""What both queues share: options, handler, tasks, schedules, middleware and events."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, cast, overload

from pgjq.client import AsyncClient, Client
from pgjq.errors import PgjqError, ValidationError
from pgjq.event_bus import BusEventName, EventBus
from pgjq.ids import make_ids, process_name
from pgjq.job import EnqueueResult, Event, NewJob
from pgjq.lease import visible_for
from pgjq.middleware import EnqueueChain, RunChain, check_middleware
from pgjq.options import Settings, check_int, check_queue, check_seconds
from pgjq.serde import JsonSerde
from pgjq.tasks.call import Call
from pgjq.tasks.decorator import Tasks
from pgjq.tasks.dispatch import Dispatcher
from pgjq.tasks.schedule import declare, make_call
from pgjq.type_variables import Payload, Result
from pgjq.worker.engine_runner import Service
from pgjq.worker.event_order import EventOrder
from pgjq.worker.handler import Consumer, Target, style_of, target_of
from pgjq.worker.publisher import now

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
    from datetime import timedelta

    from pgjq.blocking import Mode
    from pgjq.client import AnyJob
    from pgjq.job import CancelResult, JobEventName
    from pgjq.lease import LeasePolicy
    from pgjq.schedules.schedule import Declared
    from pgjq.serde import Serde
    from pgjq.storage.base import Storage
    from pgjq.tasks.task import TaskBase
    from pgjq.worker.event_order import Gate
    from pgjq.worker.handler import Done
    from pgjq.worker.job import AsyncJob, Job
    from pgjq.worker.measurements import Measurements


class QueueBase(Generic[Payload, Result]):
    """State and helpers that both queues share."""

    _mode: ClassVar[Mode]
    _task: ClassVar[type[TaskBase[Any, Any]]]
    _client: Any
    _service: Service | None = None
    handler: Callable[..., Any] | None = None
    measurements: Measurements | None = None

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
        self.payload_serde: Serde[Payload] = payload_serde or JsonSerde()
        self.result_serde: Serde[Result] = result_serde or JsonSerde()
        self.worker_id = worker_id or process_name()
        self.concurrency = check_int("concurrency", concurrency, 1, 10_000)
        self.block_timeout = check_seconds("block_timeout", block_timeout, above=0)
        self.max_attempts = None if max_attempts is None else check_int("max_attempts", max_attempts, 1)
        self.result_ttl = check_seconds("result_ttl", result_ttl, above=0)
        self.lease_policy = lease_policy or visible_for(visibility_timeout)
        self.grace = check_seconds("grace", grace, at_least=0)
        self._begin(middleware, logger)
        self.bind(storage)

    def _begin(self, middleware: Sequence[Any], logger: logging.Logger | None) -> None:
        """Make what belongs to this object, not its storage: events, tasks, schedules, middleware."""
        self.bus = EventBus(logger)
        self._order = EventOrder(self.bus)
        self._tasks = Tasks(self, self._task)
        self.declared_schedules: list[Declared] = []  # A worker adds or updates them when it starts.
        self.middleware = check_middleware(middleware)
        self._outgoing = EnqueueChain(self.middleware)

    def bind(self, storage: Storage) -> None:
        """Set the storage: that of the constructor, or of a test (`pgjq.testing.use_storage`)."""
        self._check_not_started("choose its storage")
        self.storage = storage
        make = AsyncClient if self._mode == "async" else Client
        self._client = make(storage, payload_serde=self.payload_serde, result_serde=self.result_serde)
        self._client.defaults = Settings(result_ttl=self.result_ttl, max_attempts=self.max_attempts)
        self.measurements = None

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
        """Register the handler: a plain or coroutine function of (job), or one of (job, done)."""
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
            raise ValidationError(f"queue {self.name!r} has been started: {what} before start()")

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
        """Return how this queue processes jobs on this loop; None without a handler and tasks."""
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
            self._publish_queued(results, gate)
        finally:
            self._order.end_enqueue(gate)
        return results

    async def _through_middleware(self, jobs: Iterable[AnyJob]) -> list[NewJob | EnqueueResult]:
        """Return the jobs to enqueue, with ids, and middleware's answers for jobs it kept out."""
        made = make_ids()
        new = [_new_job(job, made) for job in jobs]
        return await self._outgoing.send(new, self._mode)

    def _publish_queued(self, results: Iterable[EnqueueResult], gate: Gate | None) -> None:
        if self.bus.wants("queued"):
            for result in results:
                if result.status == "queued":
                    self._order.publish(Event("queued", self.name, result.id, now(), attempts=0), gate)

    def _publish_cancelled(self, job_id: str, result: CancelResult) -> None:
        if result.status == "cancelled" and self.bus.wants("cancelled"):
            self._order.publish(Event("cancelled", self.name, job_id, now()))

    def _serving(self) -> Service:
        if self._service is not None:
            raise PgjqError(f"queue {self.name!r} has been started already")
        self._service = Service(
            [self], self.worker_id, self.concurrency, self.lease_policy, self.grace, measurements=self.measurements
        )
        return self._service

    def add_middleware(self, middleware: Any) -> None:
        """Put a middleware around all others, before the queue is started."""
        self._check_not_started("add middleware")
        self.middleware = check_middleware([middleware, *self.middleware])
        self._outgoing = EnqueueChain(self.middleware)

    def check_runs(self) -> None:
        """Raise ValidationError if the queue has neither a handler nor a task."""
        if not self.consumes:
            raise ValidationError(
                f"queue {self.name!r} has no handler to run: define a task with @queue.task, or register a handler with"
                " queue.execute(handler), first"
            )


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
