"""Threads and the event loop: a thread that repeats a step, and a way to reach the loop from any thread."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

from pgjq.background import BackgroundThread
from pgjq.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

# Every wait for a wake-up inside a worker ends this often, and looks: a wake-up that is missed, by a defect or by a
# fault that was not thought of, costs seconds and never leaves a worker idle for good. Looking costs no statement.
LOOK_SECONDS = 5.0

BACKOFF = 0.1
LONGEST_BACKOFF = 5.0


def call_on_loop(loop: asyncio.AbstractEventLoop, callback: Callable[..., Any], *args: Any) -> bool:
    """Schedule a callback on the loop, from any thread; False if the loop is closed: its worker has stopped."""
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        if not loop.is_closed():
            raise
        return False
    return True


async def cancel(task: asyncio.Task[Any]) -> None:
    """Cancel a task and wait until it has ended."""
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def within(seconds: float, waiting: Awaitable[object]) -> None:
    """Wait for something, but no longer than this. `asyncio.wait_for` may drop a cancellation before Python 3.12."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await waiting


class Loop:
    """A thread that calls a step, which returns the seconds until its next call.

    A step that raises is reported and tried again after a pause that doubles up to five seconds. `nudge` makes the next
    call come at once; `stop` ends the thread after the step that it is in, and `end` is the last that it calls. The
    thread is supervised (`pgjq.background`), also against a `report` that raises.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[], float],
        report: Callable[[Exception], None],
        *,
        end: Callable[[], object] | None = None,
    ) -> None:
        self._step = step
        self._report = report
        self._end = end
        self._nudged = threading.Event()
        self._stopping = False
        self._ended = False
        self._thread = BackgroundThread(name, self._run, self._nudged.wait)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def nudge(self) -> None:
        """Have the next step taken now."""
        self._nudged.set()

    def stop(self, timeout: float | None = None) -> None:
        """End the thread and wait for it; one that hangs in a dead connection need not be waited for longer."""
        self._stopping = True
        self._nudged.set()
        self._thread.join(timeout)

    def _run(self) -> None:
        pause = BACKOFF
        while not self._stopping:
            try:
                self._thread.touch()
                wait = self._step()
                pause = BACKOFF
            except Exception as error:  # noqa: BLE001
                self._thread.note(error)
                if not (self._stopping and isinstance(error, StorageError)):
                    self._report(error)
                wait, pause = pause, min(pause * 2, LONGEST_BACKOFF)
            self._nudged.wait(wait)
            self._nudged.clear()
        if self._end is not None and not self._ended:
            self._ended = True
            self._end()
