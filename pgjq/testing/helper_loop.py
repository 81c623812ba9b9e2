"""An event loop in a thread beside a blocking test, for callbacks and mixed chains."""

from __future__ import annotations

import asyncio
from contextvars import copy_context
from typing import TYPE_CHECKING, Any, TypeVar

from pgjq.background import BackgroundThread
from pgjq.worker.perform import perform_async

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Storage
    from pgjq.worker.run import Run

R = TypeVar("R")

# How long coroutine callbacks may go on after the last run.
CALLBACK_SECONDS = 5.0


class HelperLoop:
    """The loop, and how to run coroutine handlers from a thread without a loop."""

    def __init__(self, storage: Storage) -> None:
        self._ops = storage.operations("async")
        self._runner: asyncio.Runner | None = None
        self.loop = asyncio.new_event_loop()
        self._thread = BackgroundThread("pgjq helper loop", self.loop.run_forever)
        self._thread.start()

    def call(self, function: Callable[..., R], *args: Any) -> R:
        """Call a function on the loop, and wait for it."""

        async def call() -> R:
            return function(*args)

        return self._wait(call())

    def perform(self, run: Run) -> Outcome:
        """Run a coroutine handler in this thread; on the helper loop if the thread has a loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._runner = self._runner or asyncio.Runner()
            loop = self._runner.get_loop()
            return self._runner.run(perform_async(run, self._ops, loop), context=copy_context())
        return self._wait(perform_async(run, self._ops, self.loop))

    def close(self) -> None:
        """Close the connections on both loops, and end them."""
        if self._runner is not None:
            self._runner.run(self._ops.close())
            self._runner.close()
        self._wait(self._finish())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    async def _finish(self) -> None:
        rest = asyncio.all_tasks() - {asyncio.current_task()}
        if rest:
            await asyncio.wait(rest, timeout=CALLBACK_SECONDS)
        for task in rest:
            task.cancel()
        await self._ops.close()

    def _wait(self, coroutine: Coroutine[Any, Any, R]) -> R:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()
