"""Start and stop an engine, on the caller's event loop or on its own."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Self

from pgjq.background import BackgroundThread
from pgjq.deadline import Deadline, bounded
from pgjq.errors import ValidationError
from pgjq.options import check_seconds
from pgjq.worker.daemon_executor import DaemonExecutor
from pgjq.worker.engine import Engine
from pgjq.worker.periodic_thread import call_on_loop
from pgjq.worker.shutdown import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from datetime import timedelta

    from pgjq.errors import PgjqError
    from pgjq.lease import LeasePolicy
    from pgjq.queue import QueueBase
    from pgjq.worker.exit_conditions import WorkLimits
    from pgjq.worker.measurements import Measurements


CANCEL_SECONDS = 0.25
# How long after the grace a stop waits for an event loop that a handler may block, and then for its answer.
BLOCKED_SECONDS = 0.75
ANSWER_SECONDS = 1.0
# Threads of a worker's own loop besides one for each handler; the loop needs them to resolve names.
SPARE_THREADS = 32


class Service:
    """The consuming side of some queues."""

    def __init__(
        self,
        queues: Sequence[QueueBase],
        worker: str,
        concurrency: int,
        policy: LeasePolicy,
        grace: float,
        *,
        strict: bool = False,
        middleware: Sequence[Any] = (),
        limits: WorkLimits | None = None,
        measurements: Measurements | None = None,
    ) -> None:
        self._queues = queues
        self._limits, self._measurements = limits, measurements
        self._middleware = middleware
        self._worker = worker
        self.concurrency = concurrency
        self._policy = policy
        self._grace = grace
        self._strict = strict
        self._engine: Engine | None = None
        self._stopping: Engine | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._deadline = Deadline()
        self._ops = queues[0].storage.operations("async")

    async def start(self) -> None:
        """Start to consume, if there is a handler."""
        self._deadline = Deadline()
        self._loop = asyncio.get_running_loop()
        consumers = [consumer for queue in self._queues if (consumer := queue.consumer(self._middleware)) is not None]
        if consumers:
            first = self._queues[0]
            with bounded(self._deadline):  # For all threads and tasks of the engine.
                self._engine = Engine(
                    first.storage,
                    consumers,
                    worker=self._worker,
                    concurrency=self.concurrency,
                    policy=self._policy,
                    block_timeout=first.block_timeout,
                    strict=self._strict,
                    logger=first.bus.logger,
                    deadline=self._deadline,
                    schedules=[declared for queue in self._queues for declared in queue.declared_schedules],
                    limits=self._limits,
                )
            self._engine.measurements = self._measurements
            if self._measurements is not None:
                self._measurements.add_source(self._engine.in_flight.all)

    def answers(self, seconds: float) -> bool:
        """Return whether the event loop answers in time, from another thread; True if it is closed."""
        answered = threading.Event()
        return self._loop is None or not call_on_loop(self._loop, answered.set) or answered.wait(seconds)

    def obstacles(self) -> list[str]:
        """Return why no jobs are taken, from any thread; nothing if they are."""
        if (engine := self._engine) is None:
            return ["the worker is stopping"]
        return [] if engine.registration.is_recent() else ["the storage has not answered for two heartbeat intervals"]

    async def stop(self, grace: float | None) -> None:
        """Stop consuming."""
        engine, self._engine = self._engine, None
        if engine is not None:
            self._stopping = engine
            await engine.stop(self.grace(grace))
            self._stopping = None
            if self._measurements is not None:
                self._measurements.remove_source(engine.in_flight.all)

    def is_blocked(self) -> bool:
        """Return whether the event loop does not answer, from another thread."""
        return not self.answers(ANSWER_SECONDS)

    def grace(self, grace: float | None) -> float:
        """Return the grace of a stop: the given one, else the service's."""
        return self._grace if grace is None else grace

    def release_all(self) -> None:
        """Release all runs on this thread: a handler blocks the event loop."""
        if (engine := self._engine or self._stopping) is not None:
            engine.release_all()

    async def close(self) -> None:
        """Close the connections that the storage has on this loop."""
        with bounded(self._deadline):
            await self._ops.close()


class OwnLoop:
    """A service on an event loop in a thread, for callers without a loop."""

    def __init__(self, service: Service, companions: Sequence[Callable[[Service], Callable[[], None]]] = ()) -> None:
        self._service = service
        self._ends: list[Callable[[], None]] = []
        self._loop = asyncio.new_event_loop()
        self._loop.set_default_executor(DaemonExecutor(service.concurrency + SPARE_THREADS))
        # An exception that leaves the loop, such as a SystemExit in a callback, must not leave an idle worker behind.
        self._thread = BackgroundThread("pgjq worker", self._loop.run_forever)
        self._thread.start()
        try:
            self._call(service.start())
            for companion in companions:
                self._ends.append(companion(service))
        except BaseException:
            self.stop(0.0)
            raise

    def stop(self, grace: float | None) -> None:
        """Stop the service, close the storage's connections on this loop, end loop and thread.

        A coroutine that blocks the loop would block the stop, too. Then this releases all runs and returns; the stop
        completes when the loop is free again.
        """
        stopping = asyncio.run_coroutine_threadsafe(self._stop_service(grace), self._loop)
        patience = self._service.grace(grace) + BLOCKED_SECONDS
        while not _is_done(stopping, patience):
            if self._service.is_blocked():
                self._service.release_all()
                threading.Thread(target=self._end, args=[stopping], name="pgjq late stop", daemon=True).start()
                return
            patience = BLOCKED_SECONDS
        self._end(stopping)

    async def _stop_service(self, grace: float | None) -> None:
        await self._service.stop(grace)
        await self._service.close()

    def _end(self, stopping: Future[None]) -> None:
        stopping.result()
        for end in self._ends:
            end()
        self._call(_cancel_the_rest())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()


def _is_done(future: Future[None], timeout: float) -> bool:
    return future in wait([future], timeout).done


async def _cancel_the_rest() -> None:
    """Cancel the remaining tasks of the loop: connects to a storage that does not answer."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        task.cancel()
    if rest:
        await asyncio.wait(rest, timeout=CANCEL_SECONDS)


class Runnable(ABC):
    """Something to start and stop: by calls, a `with` block, or signals of the operating system.

    `failure` is the error that ended it without a stop request; `finished` is whether its work has ended by itself.
    """

    failure: PgjqError | None = None
    finished: bool = False

    @abstractmethod
    def start(self) -> None:
        """Start."""

    @abstractmethod
    def stop(self) -> None:
        """Stop."""

    def run(self) -> None:
        """Work until SIGTERM or SIGINT, or until the work has ended by itself."""
        asked = StopRequest()
        self.start()
        try:
            self.wait(asked)
        finally:
            self.stop()

    def wait(self, asked: StopRequest, is_over: Callable[[], bool] = lambda: False) -> None:
        """Block the main thread until a signal or the end of the work; raise its error."""
        asked.wait(lambda: self.failure is not None or self.finished or is_over())
        if self.failure is not None:
            raise self.failure

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()


def check_grace(grace: float | timedelta | None) -> float | None:
    """Return the grace in seconds; None stands for the grace of the queue or worker."""
    return None if grace is None else check_seconds("grace", grace, at_least=0)


def check_one_storage(queues: Sequence[QueueBase]) -> None:
    """Refuse queues that do not share a storage: a worker claims from one storage."""
    if not queues:
        raise ValidationError("a worker needs at least one queue")
    if any(queue.storage is not queues[0].storage for queue in queues):
        raise ValidationError("the queues of a worker must share one storage object")
    if len({queue.name for queue in queues}) < len(queues):
        raise ValidationError("the queues of a worker must have different names")
    if any(not queue.consumes for queue in queues):
        raise ValidationError("every queue of a worker needs a task or a handler: @queue.task, queue.execute(handler)")


def common_policy(queues: Sequence[QueueBase]) -> LeasePolicy:
    """Return the lease policy that all queues of a worker share: one claim serves them all."""
    policies = {queue.lease_policy for queue in queues}
    if len(policies) > 1:
        raise ValidationError("the queues of a worker have different lease policies; name one for all: lease_policy=")
    return policies.pop()
