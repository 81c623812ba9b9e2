"""The abort signal that a handler gets as `job.signal`."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from pgjq.errors import JobCancelledError, LeaseLostError, PgjqError, TimeoutError

if TYPE_CHECKING:
    from collections.abc import Callable

CANCELLED = "cancelled"
EXPIRED = "expired"
LEASE_LOST = "lease lost"
SHUTDOWN = "shutdown"

_ERRORS: dict[str, type[PgjqError]] = {
    CANCELLED: JobCancelledError,
    EXPIRED: TimeoutError,
    LEASE_LOST: LeaseLostError,
}


def is_abort(error: BaseException) -> bool:
    """Return whether `raise_if_aborted` raised this exception."""
    return type(error) in (PgjqError, *_ERRORS.values())


class AbortSignal:
    """Set once, when a run should end: cancelled, expired, lease lost, or grace period over.

    It is a request: a thread cannot be killed, and a coroutine may not check it. A handler that ignores it only wastes
    time: the storage refuses its outcome by the lease.
    """

    __slots__ = ("_callback", "_waiters", "reason")

    shared = threading.Lock()

    def __init__(self) -> None:
        self.reason: str | None = None
        self._waiters: threading.Event | None = None
        self._callback: Callable[[], None] | None = None

    @property
    def aborted(self) -> bool:
        """Whether the run should end."""
        return self.reason is not None

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the run should end, at most `timeout` seconds; return whether it should."""
        # Most handlers never wait, so the event is created only here, under one lock for all signals.
        with self.shared:
            if self.aborted:
                return True
            self._waiters = self._waiters or threading.Event()
        return self._waiters.wait(timeout)

    def raise_if_aborted(self) -> None:
        """Raise if the run should end."""
        if self.reason is not None:
            raise _ERRORS.get(self.reason, PgjqError)(f"this run should end: {self.reason}")

    def abort(self, reason: str) -> bool:
        """Set the signal, from any thread; the first reason stays. Return whether this call set it."""
        with self.shared:
            if self.aborted:
                return False
            self.reason = reason
        if self._waiters is not None:
            self._waiters.set()
        if self._callback is not None:
            self._callback()
        return True

    def on_abort(self, callback: Callable[[], None]) -> None:
        """Set the one callback that is called when the signal is set."""
        with self.shared:
            self._callback = callback
            late = self.aborted
        if late:
            callback()
