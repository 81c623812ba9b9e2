"""A thread that repeats a step, and helpers to reach the event loop from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from math import inf
from typing import TYPE_CHECKING

from pgjq.background import BackgroundThread
from pgjq.deadline import bounded, current_deadline
from pgjq.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from pgjq.worker.fault_log import Activity

# Every wait for a wake-up inside a worker ends this often and checks: a wake-up missed by a defect or an unforeseen
# fault costs seconds and never leaves a worker idle for good. Checking costs no statement.
LOOK_SECONDS = 5.0

BACKOFF = 0.1
LONGEST_BACKOFF = 5.0
# How long a call may take to fail after its deadline.
CUT_SECONDS = 0.75
JOIN_SECONDS = 0.1
# A step that takes longer hangs, for the probe of a worker's life: statements have limits that are shorter.
STEP_SECONDS = 300.0


def call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> bool:
    """Schedule a callback on the loop from any thread; False if the worker closed the loop."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


def longer(pause: float) -> float:
    """Return the next pause, about twice as long; jitter keeps workers out of step."""
    return min(pause * 2, LONGEST_BACKOFF) * random.uniform(0.75, 1.0)  # noqa: S311  (no secret)


async def cancel(task: asyncio.Task[Any], timeout: float | None = None) -> None:
    """Cancel a task and wait until it has ended.

    psycopg takes up to ten seconds to cancel a statement that the server does not answer. With a time-out this stops
    waiting for such a task.
    """
    task.cancel()
    await asyncio.wait([task], timeout=timeout)
    if task.done() and not task.cancelled():
        task.exception()


async def within(seconds: float, waiting: Awaitable[object]) -> None:
    """Wait at most this long. `asyncio.wait_for` may drop a cancellation before Python 3.12."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting


class Loop:
    """A thread that calls a step, which returns the seconds until its next call.

    An exception of the step is reported, and the step tried again after a pause that doubles up to five seconds. The
    step's calls have the deadline of the task or thread that created this. `run_now` makes the next call now; `stop`
    ends the thread after the current step, and then the thread calls `end`. The thread is supervised
    (`pgjq.background`), also against a `report` that raises.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        report: Activity,
        *,
        end: Callable[[], object] | None = None,
    ) -> None:
        self._step = step
        self._report = report
        self._end = end
        self._deadline = current_deadline()
        self._nudged = threading.Event()
        self._stopping = False
        self._ended = False
        self._thread = BackgroundThread(name, self._run, self._nudged.wait)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def run_now(self) -> None:
        """Call the next step now."""
        self._nudged.set()

    def stop(self, timeout: float = inf) -> None:
        """End the thread; wait for it until shortly after its deadline, as its connection may hang."""
        self._stopping = True
        self._nudged.set()
        if self._thread.is_current():
            return
        until = time.monotonic() + timeout
        while self._thread.is_alive() and time.monotonic() < min(until, self._deadline.until + CUT_SECONDS):
            self._thread.join(min(JOIN_SECONDS, max(0.0, until - time.monotonic())))

    def _run(self) -> None:
        with bounded(self._deadline):
            self._repeat()

    def _repeat(self) -> None:
        pause = BACKOFF
        while not self._stopping:
            try:
                self._thread.touch(STEP_SECONDS)
                wait = self._step()
                pause = BACKOFF
                self._report.succeeded()
            except Exception as error:  # noqa: BLE001
                self._thread.note(error)
                if not (self._stopping and isinstance(error, StorageError)):
                    self._report(error)
                wait, pause = pause, longer(pause)
            self._thread.touch(wait + STEP_SECONDS)
            self._nudged.wait(wait)
            self._nudged.clear()
        if self._end is not None and not self._ended:
            self._ended = True
            self._end()
