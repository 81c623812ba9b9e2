"""Where handlers run: coroutines on the loop, plain functions and callbacks on threads.

A run waits here until one of `concurrency` slots is free. Coroutines get a task each, with a copy of the context that
the worker was started in. Threads take their next run themselves, without asking the loop, as long as there are no
coroutines to share the slots with.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import random
import threading
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from pgjq.errors import ValidationError
from pgjq.outcome import Completed, Failed, Outcome, Released, decide, describe
from pgjq.worker.run import AsyncJob, Job, Run
from pgjq.worker.signal import SHUTDOWN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Operations, Storage

HORIZON = 0.1
MOST_AHEAD = 1500
SMOOTHING = 0.05


class Executor:
    """Runs what it is given; `ended` is called once for each run, on the loop or on a thread, with its outcome."""

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
        self.duration: float | None = None
        self._ended = ended
        self._freed = freed
        self._alone = not coroutines
        self._loop = asyncio.get_running_loop()
        self._context = contextvars.copy_context()
        self._ops: Operations = storage.operations("async")
        self._thread_ops: Operations = storage.operations("blocking")
        self._waiting: deque[Run] = deque()
        self._inbox: queue.SimpleQueue[Run | None] = queue.SimpleQueue()
        self._tasks: dict[Run, asyncio.Task[None]] = {}
        self._busy: set[Run] = set()  # On threads; adding and discarding are atomic.
        self._handed = 0  # To threads that share the slots with coroutines; only the loop counts.
        self._threads = [
            threading.Thread(target=self._serve, name=f"pgjq runner {n}", daemon=True)
            for n in range(concurrency if threads else 0)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def running(self) -> int:
        """How many handlers are running."""
        return len(self._tasks) + len(self._busy)

    @property
    def stuck(self) -> int:
        """How many threads hang in handlers whose runs are over, and have no room for others."""
        return sum(run.ended for run in tuple(self._busy))

    @property
    def ahead(self) -> int:
        """How many runs are worth claiming before there is a slot for them: those that could start in a moment."""
        if not self.duration:
            return 0
        return min(MOST_AHEAD, int(self.concurrency * HORIZON / self.duration))

    @property
    def waiting(self) -> int:
        """How many runs have not started."""
        return len(self._waiting) + self._inbox.qsize()

    def submit(self, runs: list[Run]) -> None:
        """Start runs as slots become free, in their order."""
        self._waiting.extend(runs)
        self._fill()

    def take_back(self) -> list[Run]:
        """Give up every run that has not started."""
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
            self._loop.call_soon_threadsafe(self._cancel, run)

    def stop(self) -> None:
        """Let threads end when they are free; one that hangs in a handler is left to itself."""
        for _ in self._threads:
            self._inbox.put(None)

    def _cancel(self, run: Run) -> None:
        task = self._tasks.get(run)
        if task is not None:
            task.cancel()

    def _fill(self) -> None:
        while self._waiting and (self._alone or len(self._tasks) + self._handed < self.concurrency):
            run = self._waiting.popleft()
            if run.is_over():
                self._finish(run, Released(), on_loop=True)
            elif run.consumer.style == "coroutine":
                run.start()
                self._tasks[run] = self._loop.create_task(self._await(run), context=self._context.copy())
            else:
                self._handed += not self._alone
                self._inbox.put(run)

    def _returned(self) -> None:
        self._handed -= 1
        self._fill()

    async def _await(self, run: Run) -> None:
        began = time.perf_counter()
        try:
            job = AsyncJob(run, *_decoded(run), self._ops)
        except Exception as error:  # noqa: BLE001
            outcome = Failed(describe(error))
        else:
            try:
                outcome = self._completed(run, await run.consumer.handler(job))
            except asyncio.CancelledError as error:
                # At shutdown the run is given back; a lost lease costs the attempt, if the storage still listens.
                outcome = Released() if run.signal.reason == SHUTDOWN else self._decided(run, error)
            except (Exception, SystemExit) as error:  # noqa: BLE001
                outcome = self._decided(run, error)
        self._tasks.pop(run, None)
        self._measure(time.perf_counter() - began)
        self._finish(run, outcome, on_loop=True)
        self._fill()

    def _serve(self) -> None:
        """Run plain functions, one after the other."""
        while (run := self._inbox.get()) is not None:
            # What waited until its lease was lost is somebody else's; it is given back, should it still be ours.
            over = run.is_over()
            stuck = not self._finish(run, Released() if over else self._take(run), on_loop=False)
            if stuck and not over:
                self._loop.call_soon_threadsafe(self._freed)
            if not self._alone:
                self._loop.call_soon_threadsafe(self._returned)

    def _take(self, run: Run) -> Outcome:
        run.start()
        self._busy.add(run)
        began = time.perf_counter()
        outcome = self._context.copy().run(self._run, run)
        self._measure(time.perf_counter() - began)
        self._busy.discard(run)
        return outcome

    def _run(self, run: Run) -> Outcome:
        try:
            job = Job(run, *_decoded(run), self._thread_ops)
        except Exception as error:  # noqa: BLE001
            return Failed(describe(error))
        try:
            handler = run.consumer.handler
            result = _call_back(run, job) if run.consumer.style == "callback" else handler(job)
        except BaseException as error:  # noqa: BLE001  (a thread that dies would take its slot along)
            return self._decided(run, error)
        return self._completed(run, result)

    def _completed(self, run: Run, result: Any) -> Outcome:
        """Write the result down. One that cannot be written fails the job for good: its work is done, and done once."""
        try:
            return Completed(run.consumer.result_serde.serialize(result))
        except Exception as error:  # noqa: BLE001
            lease = run.claimed.lease
            return Failed(describe(ValidationError(f"the result of job {lease.id!r} cannot be serialised: {error}")))

    def _decided(self, run: Run, error: BaseException) -> Outcome:
        claimed = run.claimed
        return decide(
            error,
            attempts=claimed.attempts,
            max_attempts=claimed.max_attempts,
            options=claimed.options,
            chance=random.random(),  # noqa: S311
        )

    def _finish(self, run: Run, outcome: Outcome, *, on_loop: bool) -> bool:
        if not run.end():
            return False
        self._ended(run, outcome, on_loop)
        return True

    def _measure(self, seconds: float) -> None:
        """Keep a moving average of how long handlers take."""
        known = self.duration
        self.duration = seconds if known is None else known + SMOOTHING * (seconds - known)


def _decoded(run: Run) -> tuple[Any, Any]:
    """Read a job's payload and checkpoint; what cannot be read fails this job and no other."""
    serde, claimed = run.consumer.payload_serde, run.claimed
    checkpoint = None if claimed.checkpoint is None else serde.deserialize(claimed.checkpoint)
    return serde.deserialize(claimed.payload), checkpoint


def _call_back(run: Run, job: Job) -> Any:
    """Call a handler of the callback style, and wait for its word or for the signal."""
    said: list[tuple[BaseException | None, Any]] = []
    spoken = threading.Event()

    def done(error: BaseException | None = None, result: Any = None) -> None:
        if not said:
            said.append((error, result))
            spoken.set()

    run.signal.on_abort(spoken.set)
    run.consumer.handler(job, done)
    spoken.wait()
    if not said:
        job.signal.raise_if_aborted()
    error, result = said[0]
    if error is not None:
        raise error if isinstance(error, Exception) else RuntimeError(str(error))
    return result
