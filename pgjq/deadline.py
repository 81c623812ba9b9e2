"""Deadlines for the storage calls of one task or thread.

A caller with its own time-out sets a deadline around its calls, and a worker that stops shortens the deadline of all
its calls. A storage reads the deadline when it starts to wait for a server. The deadline is a context variable: tasks
started inside inherit it, threads set their own.

Every wait checks its deadline again after `LOOK_SECONDS`, because a deadline can be shortened meanwhile.

A deadline ends a wait, not the work of the server. `limit_statements` makes a server end each statement itself.
"""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from math import inf
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pgjq.errors import StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

R = TypeVar("R")

LOOK_SECONDS: Final = 0.25
NO_ANSWER: Final = "no answer in time"


class Deadline:
    """A point of the monotonic clock; it can be brought forward while calls wait."""

    __slots__ = ("until",)

    def __init__(self, seconds: float = inf) -> None:
        self.until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds left, 0 after the deadline."""
        return max(0.0, self.until - time.monotonic())

    def end_within(self, seconds: float) -> None:
        """Shorten the deadline to at most this many seconds from now."""
        self.until = min(self.until, time.monotonic() + seconds)


UNLIMITED = Deadline()
_current: ContextVar[Deadline] = ContextVar("pgjq deadline", default=UNLIMITED)
_statement_limit: ContextVar[float | None] = ContextVar("pgjq statement limit", default=None)


def current_deadline() -> Deadline:
    """Return the deadline of the running task or thread."""
    return _current.get()


@contextmanager
def bounded(deadline: Deadline) -> Generator[Deadline]:
    """Apply a deadline to the calls of a block."""
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)


def current_statement_limit() -> float | None:
    """Return the seconds that a server may work on one statement; None for no limit."""
    return _statement_limit.get()


@contextmanager
def limit_statements(seconds: float) -> Generator[None]:
    """Let the server end each statement of a block after some seconds.

    PostgreSQL does, by its `statement_timeout`.
    """
    token = _statement_limit.set(seconds)
    try:
        yield
    finally:
        _statement_limit.reset(token)


async def wait_in_time(waiting: Awaitable[R], slack: float = 0.0) -> R:
    """Wait until the deadline; then cancel the awaitable and raise the built-in `TimeoutError`.

    `slack` is extra time for an awaitable that has the same deadline and raises a more specific error.
    """
    deadline = current_deadline()
    if deadline is UNLIMITED:
        return await waiting
    task = asyncio.ensure_future(waiting)
    try:
        while not task.done():
            left = deadline.until + slack - time.monotonic()
            if left <= 0:
                raise TimeoutError(NO_ANSWER)
            await asyncio.wait([task], timeout=min(LOOK_SECONDS, left))
        return task.result()
    finally:
        task.cancel()


def call_in_time(call: Callable[[], R], *, discard: Callable[[R], object] = lambda _: None) -> R:
    """Make a blocking call; raise the built-in `TimeoutError` at the deadline.

    With a deadline the call runs on its own thread, which costs about 0.1 ms. If the call does not return in time, its
    thread keeps running; `discard` gets the late result.
    """
    deadline = current_deadline()
    if deadline is UNLIMITED:
        return call()
    answer = start_call(call, discard=discard)
    while not answer.done() and (left := deadline.left):
        wait([answer], min(LOOK_SECONDS, left))
    if answer.cancel():
        raise TimeoutError(NO_ANSWER)
    return answer.result()


def start_call(call: Callable[[], R], *, discard: Callable[[R], object] = lambda _: None) -> Future[R]:
    """Start a blocking call on a daemon thread; `discard` gets the result if it comes too late."""
    answer: Future[R] = Future()
    args = copy_context().run, call, answer, discard
    threading.Thread(target=_answer, args=args, name="pgjq call", daemon=True).start()
    return answer


async def run_on_thread(call: Callable[[], R]) -> R:
    """Make a blocking call on its own thread.

    Handlers may occupy every thread that `asyncio.to_thread` has.
    """
    return await asyncio.wrap_future(start_call(call))


def _answer(
    run: Callable[[Callable[[], R]], R], call: Callable[[], R], answer: Future[R], discard: Callable[[R], object]
) -> None:
    try:
        result = run(call)
    except BaseException as error:  # noqa: BLE001  (the caller raises it)
        if answer.set_running_or_notify_cancel():
            answer.set_exception(error)
    else:
        if answer.set_running_or_notify_cancel():
            answer.set_result(result)
        else:
            discard(result)


def acquire_in_time(lock: Any, patience: float = inf) -> bool:
    """Acquire a `threading` lock or semaphore; False after `patience` or the deadline."""
    if lock.acquire(blocking=False):
        return True
    deadline, until = current_deadline(), time.monotonic() + patience
    while (left := min(until, deadline.until) - time.monotonic()) > 0:
        if lock.acquire(timeout=min(LOOK_SECONDS, left)):
            return True
    return False


@contextmanager
def holding(lock: Any, busy: str) -> Generator[None]:
    """Hold a `threading` lock for a block; raise StorageUnavailableError at the deadline."""
    if not acquire_in_time(lock):
        raise StorageUnavailableError(busy)
    try:
        yield
    finally:
        lock.release()
