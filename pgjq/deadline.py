"""Until when the calls of one task or thread may wait for a storage.

A caller with a time-out of its own sets a deadline around its calls, and a worker shortens that of all its calls when
it stops. A storage that waits for a server reads the deadline where it begins to wait. It is a context variable: tasks
that are started inside inherit it, threads set it for themselves.

Every wait looks at its deadline again after `LOOK_SECONDS`, because a deadline can be moved ahead.
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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

R = TypeVar("R")

LOOK_SECONDS: Final = 0.25
NO_ANSWER: Final = "no answer in time"


class Deadline:
    """A moment of the monotonic clock; it can be moved ahead while calls wait."""

    __slots__ = ("until",)

    def __init__(self, seconds: float = inf) -> None:
        self.until = time.monotonic() + seconds

    @property
    def left(self) -> float:
        """The seconds that are left, 0 if the time is over."""
        return max(0.0, self.until - time.monotonic())

    def end_within(self, seconds: float) -> None:
        """Let no call wait for longer than this from now on."""
        self.until = min(self.until, time.monotonic() + seconds)


UNLIMITED = Deadline()
_current: ContextVar[Deadline] = ContextVar("pgjq deadline", default=UNLIMITED)


def current_deadline() -> Deadline:
    """Return the deadline of the running task or thread."""
    return _current.get()


@contextmanager
def bounded(deadline: Deadline) -> Generator[Deadline]:
    """Bound the calls of a block."""
    token = _current.set(deadline)
    try:
        yield deadline
    finally:
        _current.reset(token)


async def wait_in_time(waiting: Awaitable[R], slack: float = 0.0) -> R:
    """Wait for something until the deadline; then cancel it and raise the built-in `TimeoutError`.

    `slack` is for what has the same deadline, and can say more about it.
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
    """Make a call that blocks; raise the built-in `TimeoutError` once the deadline is over.

    With a deadline the call is made on a thread of its own, which costs about 0.1 ms. A thread whose call does not
    return in time is left to itself; `discard` gets what the call returns later.
    """
    deadline = current_deadline()
    if deadline is UNLIMITED:
        return call()
    answer: Future[R] = Future()
    args = copy_context().run, call, answer, discard
    threading.Thread(target=_answer, args=args, name="pgjq call", daemon=True).start()
    while not answer.done() and (left := deadline.left):
        wait([answer], min(LOOK_SECONDS, left))
    if answer.cancel():
        raise TimeoutError(NO_ANSWER)
    return answer.result()


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
    """Acquire a lock or a semaphore of `threading`; False if it is not free within `patience` or the deadline."""
    if lock.acquire(blocking=False):
        return True
    deadline, until = current_deadline(), time.monotonic() + patience
    while (left := min(until, deadline.until) - time.monotonic()) > 0:
        if lock.acquire(timeout=min(LOOK_SECONDS, left)):
            return True
    return False
