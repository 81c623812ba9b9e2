"""Until when the calls of one task or thread may wait for a storage.

A caller with a time-out of its own sets a deadline around its calls, and a worker shortens that of all its calls when
it stops. A storage that waits for a server reads the deadline where it begins to wait. It is a context variable: tasks
that are started inside inherit it, threads set it for themselves.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from contextvars import ContextVar
from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


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
