"""`Worker`: serve several queues with one pool of slots, on threads or in processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.errors import PgjqError, UnsupportedError
from pgjq.ids import process_name
from pgjq.middleware import check_middleware
from pgjq.options import check_int, check_seconds
from pgjq.worker.engine_runner import OwnLoop, Runnable, Service, check_grace, check_one_storage, common_policy
from pgjq.worker.exit_conditions import Limits, WorkLimits
from pgjq.worker.supervisor import DRAINED, RETIRED, Supervisor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import timedelta

    from pgjq.lease import LeasePolicy
    from pgjq.queue import AsyncQueue, Queue
    from pgjq.worker.measurements import Measurements
    from pgjq.worker.shutdown import StopRequest


class Worker(Runnable):
    """Serve several queues with one pool of slots, on threads or in supervised `processes`.

    If the supervisor is killed, its processes end, the queues get an `error` event, and `run` raises it.

    Each claim begins with the next queue, and continues with the others if that one has too few jobs. So no queue
    starves behind the backlog of another. With `strict=True` each claim begins with the first queue, and a queue is
    served only while the queues before it have no job to run.

    With `drain=True` it works until nothing is due, and `run` returns. A process that has run `max_jobs` jobs, or uses
    more than `max_memory` bytes, claims no more, ends its runs and is replaced by another.
    """

    measurements: Measurements | None = None
    _running: OwnLoop | Supervisor | None = None

    def __init__(
        self,
        *queues: Queue | AsyncQueue,
        concurrency: int = 10,
        processes: int = 1,
        grace: float | timedelta = 30.0,
        lease_policy: LeasePolicy | None = None,
        strict: bool = False,
        middleware: Sequence[Any] = (),
        max_jobs: int | None = None,
        max_memory: int | None = None,
        drain: bool = False,
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
        self.limits = Limits(max_jobs, max_memory, drain)
        self._companions: list[Callable[[Service], Callable[[], None]]] = []
        self._supervised = self.processes > 1 or self.limits.replaces
        if self._supervised and not self.storage.capabilities.processes:
            raise UnsupportedError(
                f"{type(self.storage).__name__} lives in one process; use processes=1, without max_jobs and max_memory"
            )

    def start(self) -> None:
        """Start to consume."""
        if self._running is not None:
            raise PgjqError("this worker has been started already")
        self.finished = False
        if self._supervised:
            self.failure = None
            self._running = Supervisor(
                self.processes,
                self._run_as_child,
                self.queues[0].bus.logger,
                grace=self.grace,
                lost=self._lose_processes,
                finished=self._finish,
            )
        else:
            limits = WorkLimits(self.limits, self._finish)
            self._running = OwnLoop(self._service(self.queues[0].worker_id, limits), self._companions)

    def _finish(self) -> None:
        self.finished = True

    def accompany(self, companion: Callable[[Service], Callable[[], None]]) -> None:
        """Call a function in each process when it serves the queues, and its result after the stop."""
        self._companions.append(companion)

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

    def _service(self, worker_id: str, limits: WorkLimits) -> Service:
        return Service(
            self.queues,
            worker_id,
            self.concurrency,
            self.lease_policy,
            self.grace,
            strict=self.strict,
            middleware=self.middleware,
            limits=limits,
            measurements=self.measurements,
        )

    def _run_as_child(self, asked: StopRequest, grace: Callable[[], float | None]) -> int:
        """Run as one of several processes, under its own name, and return the exit status."""
        limits = WorkLimits(self.limits, asked.ask)
        running = OwnLoop(self._service(process_name(), limits), self._companions)
        try:
            asked.wait()
        finally:
            running.stop(grace())
        return {None: 0, "retired": RETIRED, "drained": DRAINED}[limits.outcome]
