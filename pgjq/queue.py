"""Queues: produce jobs, and process them with handlers.

`AsyncQueue` uses its caller's event loop. `Queue` blocks: it produces with the sync operations, and consumes on an
event loop in its own thread. A queue without a handler only produces. `Worker` serves several queues with one pool of
slots.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, Unpack, overload

from pgjq.async_queue import AsyncQueue
from pgjq.blocking import drive
from pgjq.queue_base import QueueBase
from pgjq.tasks.decorator import callers_names
from pgjq.tasks.task import Task
from pgjq.type_variables import Payload, Result
from pgjq.worker.engine_runner import OwnLoop, Runnable, check_grace
from pgjq.worker.worker import Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Sequence
    from datetime import timedelta

    from pgjq.client import AnyJob, Client
    from pgjq.declared_options import EnqueueOptions
    from pgjq.job import CancelResult, EnqueueResult, JobStatus
    from pgjq.tasks.decorator import TaskDecorator, TaskOptions
    from pgjq.tasks.schedule import ScheduleDecorator, ScheduleOptions

P = ParamSpec("P")
R = TypeVar("R")
Default = TypeVar("Default")

__all__ = ["AsyncQueue", "Queue", "Worker"]

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
        """Make a task of a function: `@queue.task`, or `@queue.task(name=…, priority=5)`.

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
        """Run a function without arguments at times: `@queue.schedule("0 3 * * *", timezone=…)`.

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
        self.check_runs()
        super().run()
