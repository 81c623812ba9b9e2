"""A worker without a loop of its own: runs job after job in the caller's thread.

It runs, decides and settles with the code of a worker (`pgjq.worker`). A plain function runs in the calling thread on a
`Queue`, and a coroutine in the calling task on an `AsyncQueue`. What the two mix (a coroutine on a `Queue`, a plain
function on an `AsyncQueue`, async middleware around a plain function) meets on a helper loop or thread, as in a worker.
There are no heartbeats: nothing else takes jobs back while a test runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from pgjq.errors import ValidationError
from pgjq.outcome import Failed, Failing, Outcome
from pgjq.queue import AsyncQueue
from pgjq.storage.base import Settlement
from pgjq.testing.faults import maybe_crash
from pgjq.testing.helper_loop import HelperLoop
from pgjq.testing.replace_storage import protected
from pgjq.worker.job_log import log_dropped, log_processing, log_refused, log_settled
from pgjq.worker.perform import perform, perform_async
from pgjq.worker.publisher import Publisher
from pgjq.worker.run import Run
from pgjq.worker.settler import instead

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.blocking import Mode
    from pgjq.job import State
    from pgjq.queue import Queue
    from pgjq.storage.base import Claimed
    from pgjq.worker.handler import Consumer


class Ended(NamedTuple):
    """The outcome of a run, and the state that it led to; None if the lease was lost."""

    outcome: Outcome
    state: State | None


class InlineWorker:
    """Runs jobs of one queue in the queue's mode; a sync one drives every coroutine."""

    def __init__(self, queue: Queue | AsyncQueue) -> None:
        queue.check_runs()
        self.queue = queue
        self.mode: Mode = "async" if isinstance(queue, AsyncQueue) else "sync"
        self.ops = queue.storage.operations(self.mode)
        self._helper = HelperLoop(queue.storage) if self.mode == "sync" else None
        self._in_transaction: Outcome | None = None

    async def __aenter__(self) -> Self:
        self._consumer = self._make_consumer() if self._helper is None else self._helper.call(self._make_consumer)
        loop = asyncio.get_running_loop() if self._helper is None else self._helper.loop
        self.publisher = Publisher(loop, {self.queue.name: self._consumer})
        return self

    async def __aexit__(self, *exc: object) -> None:
        if self._helper is not None:
            self._helper.close()

    def _make_consumer(self) -> Consumer:
        consumer = self.queue.consumer()
        assert consumer is not None
        return consumer

    async def claim(self) -> Claimed | None:
        """Claim the job that a worker would claim next, if one is due."""
        found = await self.ops.claim(
            [self.queue.name], worker=self.queue.worker_id, limit=1, policy=self.queue.lease_policy
        )
        return found[0] if found else None

    async def run(self, claimed: Claimed) -> Ended:
        """Run a claimed job and settle it; WorkerCrash where `crash_after` says so."""
        run = Run(
            claimed,
            self._consumer,
            worker=self.queue.worker_id,
            sent=time.monotonic(),
            beat=None,
            committed=self._committed,
        )
        run.limits_idle = False  # It may run in the test's own transaction, whose settings are the test's.
        log_processing(run)
        self._publish(self.publisher.claimed, run)
        try:
            return await self._run(run)
        except BaseException:
            self._publish(self.publisher.stop, [run])
            raise

    async def _run(self, run: Run) -> Ended:
        maybe_crash("claim", run, self.ops, self.mode)
        run.start()
        self._in_transaction = None
        async with protected(self.queue.storage):
            outcome = await self._perform(run)
        maybe_crash("handler", run, self.ops, self.mode)
        ended = await self._settle(run, outcome)
        maybe_crash("commit", run, self.ops, self.mode)
        self._publish(self.publisher.settled, run, ended.outcome, ended.state)
        _raise_what_ends_a_test(outcome)
        return ended

    async def _perform(self, run: Run) -> Outcome:
        storage = self.queue.storage
        if self._helper is not None:
            return self._helper.perform(run) if run.target.is_coroutine else copy_context().run(perform, run, self.ops)
        if not run.target.is_coroutine:
            return await asyncio.to_thread(perform, run, storage.operations("sync"))
        loop = asyncio.get_running_loop()
        return await loop.create_task(perform_async(run, self.ops, loop), context=copy_context())

    async def _settle(self, run: Run, outcome: Outcome) -> Ended:
        if not run.end():
            log_dropped(run, outcome)
            return Ended(self._in_transaction or outcome, "completed" if self._in_transaction else None)
        try:
            (answer,) = await self.ops.settle([Settlement(run.claimed.lease, outcome)])
        except ValidationError as error:
            outcome = instead(outcome, error)
            (answer,) = await self.ops.settle([Settlement(run.claimed.lease, outcome)])
        if answer.state is None:
            log_refused(run, outcome, known=False)
        elif answer.state != "completed" or run.consumer.bus.logger.isEnabledFor(logging.DEBUG):
            log_settled(run, outcome, answer.state)
        return Ended(outcome, answer.state)

    def _committed(self, run: Run, outcome: Outcome) -> None:
        """Record that the handler completed its job in its own transaction."""
        del run
        self._in_transaction = outcome

    def _publish(self, publish: Callable[..., Any], *args: Any) -> None:
        if not self._consumer.bus.listens:
            return
        if self._helper is None:
            publish(*args)
        else:
            self._helper.call(publish, *args)


def _raise_what_ends_a_test(outcome: Outcome) -> None:
    """Raise Ctrl-C and test frameworks' exceptions after they were recorded as a failure."""
    cause = outcome.cause if isinstance(outcome, Failing | Failed) else None
    if cause is not None and not isinstance(cause, Exception | SystemExit | asyncio.CancelledError):
        raise cause
