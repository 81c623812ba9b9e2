"""The threads of `asyncio.to_thread` on a worker's own event loop.

Python waits at its exit for the threads of an ordinary executor, so a handler that blocks in one would keep a stopped
worker alive. These are daemon threads. The worker's own calls have threads of their own
(`pgjq.deadline.run_on_thread`), because handlers may occupy all of these.
"""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")
R = TypeVar("R")


class DaemonExecutor(ThreadPoolExecutor):
    """At most `most` daemon threads, started when they are needed."""

    def __init__(self, most: int) -> None:
        super().__init__(1)  # Its own thread never starts.
        self._most = most
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._free = threading.Semaphore(0)
        self._started = 0
        self._changing = threading.Lock()

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Call a function on one of the threads."""
        future: Future[R] = Future()
        self._calls.put(lambda: _answer(future, lambda: fn(*args, **kwargs)))
        if not self._free.acquire(blocking=False):
            self._start_thread()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002
        """End the threads when their calls have returned, without waiting for them."""
        del wait
        super().shutdown(wait=False, cancel_futures=cancel_futures)
        for _ in range(self._started):
            self._calls.put(None)

    def _start_thread(self) -> None:
        with self._changing:
            if self._started >= self._most:
                return
            self._started += 1
            name = f"pgjq to_thread {self._started}"
        threading.Thread(target=self._serve, name=name, daemon=True).start()

    def _serve(self) -> None:
        # The wait is unbounded and misses nothing: `shutdown` puts a None for each thread.
        while (call := self._calls.get()) is not None:
            call()
            del call  # Its arguments would live until the next call.
            self._free.release()


def _answer(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001  (the caller raises it)
        future.set_exception(error)
    else:
        future.set_result(result)
