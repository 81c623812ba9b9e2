"""Call coroutines of the worker's loop from a thread, and functions on that thread from it.

A chain of middleware, dependencies and a handler may mix plain functions and coroutines. Then it runs on a thread, and
each coroutine of it on the loop while the thread waits. The waiting thread runs the functions that the coroutine calls,
so a mixed chain takes no further thread. Context variables travel both ways into what is called.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
from concurrent.futures import CancelledError, Future
from typing import TYPE_CHECKING, Any

from pgjq.worker.periodic_thread import call_on_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgjq.worker.abort_signal import AbortSignal


class Bridge:
    """One call of a coroutine by a thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, signal: AbortSignal) -> None:
        self._loop = loop
        self._signal = signal
        self._requests: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine on the loop and return its result; the abort signal of the run cancels it."""
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        future.add_done_callback(lambda _: self._requests.put(None))
        self._signal.on_abort(lambda: _cancel(future))
        # Ends with the coroutine: it completes, fails, or is cancelled by the signal, which the end of the worker sets.
        while (request := self._requests.get()) is not None:
            request()
        try:
            return future.result()
        except CancelledError:
            self._signal.raise_if_aborted()
            raise

    async def call(self, function: Callable[[Any], Any], argument: Any) -> Any:
        """Call a function on the waiting thread, from the coroutine."""
        done: asyncio.Future[Any] = self._loop.create_future()
        context = contextvars.copy_context()

        def request() -> None:
            try:
                result = context.run(function, argument)
            except BaseException as error:  # noqa: BLE001  (the coroutine gets it)
                call_on_loop(self._loop, _settle, done, None, error)
            else:
                call_on_loop(self._loop, _settle, done, result, None)

        self._requests.put(request)
        return await done


def _cancel(future: Future[Any]) -> None:
    future.cancel()


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)
