"""Run handlers: coroutines on the event loop, plain functions and callbacks on threads.

A run waits here until one of `concurrency` slots is free. Each coroutine gets a task, with a copy of the context that
the worker was started in. Threads take their next run directly, without the loop, unless coroutines share the slots.

Rules
* Any exception of a handler ends its run and nothing else: a KeyboardInterrupt that left a task would end the loop.
* A slot is taken until its handler has returned, even if its run was over before: a cancelled coroutine may still be
  cleaning up, and a thread cannot be cancelled.
* A handler may outlive its worker, and then its loop. Its late result or exception is logged.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import time
from collections import deque
from typing import TYPE_CHECKING

from pgjq.background import BackgroundThread
from pgjq.outcome import Outcome, Released
from pgjq.worker.job_log import log_abandoned, log_dropped
from pgjq.worker.perform import perform, perform_async
from pgjq.worker.periodic_thread import call_on_loop
from pgjq.worker.prefetch import Prefetch

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Operations, Storage
    from pgjq.worker.run import Run

# How long cancelled coroutines may clean up when the worker stops.
CLEANUP_SECONDS = 0.85
AGAIN_SECONDS = 0.15


class Executor:
    """Runs handlers; calls `ended` once per run, on the loop or on a thread, with the outcome.

    Calls `freed` on the loop when a handler returns whose run was over before.
    """

    def __init__(
        self,
        storage: Storage,
        concurrency: int,
        *,
        threads: bool,
        coroutines: bool,
        ended: Callable[[Run, Outcome, bool], None],
        freed: Callable[[], None],
    ) -> None:
        self.concurrency = concurrency
        self._prefetch = Prefetch()
        self._ended = ended
        self._freed = freed
        self._alone = not coroutines
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._ops: Operations = storage.operations("async")
        self._thread_ops: Operations = storage.operations("sync")
        self._waiting: deque[Run] = deque()
        self._inbox: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._busy: set[Run] = set()  # Runs on threads; adding and discarding are atomic.
        self._handed = 0  # Runs passed to threads that share the slots with coroutines; only the loop counts.
        self._threads = [
            BackgroundThread(f"pgjq runner {n}", self._serve) for n in range(concurrency if threads else 0)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        """The number of running handlers."""
        return len(self._tasks) + len(self._busy)

    def is_idle(self) -> bool:
        """Return whether no handler runs, and no run waits."""
        return self.running == 0 and self.waiting == 0

    @property
    def usable(self) -> int:
        """The number of slots not taken by handlers whose runs are over."""
        stuck = sum(run.ended for run in tuple(self._busy)) + sum(run.ended for run in self._tasks)
        return self.concurrency - stuck

    @property
    def waiting(self) -> int:
        """The number of runs that have not started."""
        return len(self._waiting) + self._inbox.qsize()

    @property
    def may_keep_waiting(self) -> bool:
        """Whether a run may have to wait: for a slot, or for a coroutine that blocks the loop."""
        return self.running + self.waiting > (self.concurrency if self._alone else 1)

    def prefetch_count(self, slots: int) -> int:
        """Return how many runs to claim before a slot is free: those that could start soon."""
        saturated = self.running + self.waiting >= self.concurrency
        return self._prefetch.prefetch_count(slots, saturated=saturated, now=time.perf_counter())

    def claim_less(self) -> None:
        """Stop prefetching until handlers end; called from any thread."""
        self._prefetch.reset(time.perf_counter())

    def submit(self, runs: list[Run]) -> None:
        """Start runs in order, as slots become free."""
        self._waiting.extend(runs)
        self._fill()

    def take_back(self) -> list[Run]:
        """Remove and return every run that has not started."""
        runs = list(self._waiting)
        self._waiting.clear()
        while True:
            try:
                run = self._inbox.get_nowait()
            except queue.Empty:
                return runs
            if run is not None:
                runs.append(run)

    def abort(self, run: Run) -> None:
        """Cancel a run's coroutine, from any thread; a thread cannot be cancelled."""
        if run in self._tasks:
            call_on_loop(self._loop, self._cancel, run)

    async def stop(self, until: float) -> None:
        """Wait briefly for cancelled coroutines to clean up; threads end when their handlers return."""
        for _ in self._threads:
            self._inbox.put(None)
        left = max(0.0, until - time.monotonic())
        for seconds in (min(CLEANUP_SECONDS, left), AGAIN_SECONDS):
            if self._tasks:
                await asyncio.wait(self._tasks.values(), timeout=seconds)
            # Again: psycopg takes up to ten seconds to cancel a statement that the server does not answer.
            for task in self._tasks.values():
                task.cancel()
        for run, task in self._tasks.items():
            log_abandoned(run)
            # `asyncio.run` would wait for it for ever.
            asyncio._unregister_task(task)  # noqa: SLF001  (documented for libraries, in "Extending asyncio")

    def _cancel(self, run: Run) -> None:
        task = self._tasks.get(run)
        if task is not None:
            task.cancel()

    def _fill(self) -> None:
        while self._waiting and (self._alone or len(self._tasks) + self._handed < self.concurrency):
            run = self._waiting.popleft()
            if run.is_over():
                self._finish(run, Released(), on_loop=True)
            elif run.target.is_coroutine:
                self._tasks[run] = self._loop.create_task(self._await(run), context=self._context.copy())
            else:
                self._handed += not self._alone
                self._inbox.put(run)

    def _returned(self) -> None:
        self._handed -= 1
        self._fill()

    async def _await(self, run: Run) -> None:
        if not run.start():
            self._end_task(run, Released())
            return
        outcome = await perform_async(run, self._ops, self._loop)
        self._prefetch.measure(run.measure())
        self._end_task(run, outcome)
        del outcome  # It refers to the exception, whose traceback refers to this frame: a cycle.

    def _end_task(self, run: Run, outcome: Outcome) -> None:
        self._tasks.pop(run, None)
        if not self._finish(run, outcome, on_loop=True):
            self._freed()
        self._fill()

    def _serve(self) -> None:
        """Run plain functions, one after the other."""
        # The wait is unbounded and misses nothing: the inbox keeps each run until a thread takes it, and `stop` puts a
        # None into it for each thread.
        while (run := self._inbox.get()) is not None:
            # A run that waited until its lease was lost is another worker's; it is released in case it is still ours.
            started = not run.is_over() and run.start()
            if not self._finish(run, self._take(run) if started else Released(), on_loop=False) and started:
                call_on_loop(self._loop, self._freed)
            if not self._alone:
                call_on_loop(self._loop, self._returned)

    def _take(self, run: Run) -> Outcome:
        self._busy.add(run)
        outcome = self._context.copy().run(perform, run, self._thread_ops)
        self._prefetch.measure(run.measure())
        self._busy.discard(run)
        return outcome

    def _finish(self, run: Run, outcome: Outcome, *, on_loop: bool) -> bool:
        if run.end():
            self._ended(run, outcome, on_loop)
            return True
        if run.started:
            log_dropped(run, outcome)
        return False
