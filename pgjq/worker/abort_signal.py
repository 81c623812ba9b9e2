"""The word to stop, as a handler hears it."""

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
    """Tell whether an exception is one that `raise_if_aborted` raises."""
    return type(error) in (PgjqError, *_ERRORS.values())


class AbortSignal:
    """Set once, when a run should end: on cancellation, expiry, loss of the lease, or shutdown past the grace period.

    A thread cannot be killed and a coroutine may not be listening, so this is a request. Whoever ignores it loses
    nothing but time: its outcome is refused by the lease.
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
        """Block until the run should end, at the longest `timeout` seconds; say whether it should."""
        # A job that nobody waits in needs no event, and most are such; so one is made here, under a lock of all.
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
        """Set it, from any thread; the first reason stays. Say whether this was the first."""
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
        """Have something done when it is set; there is one such thing."""
        with self.shared:
            self._callback = callback
            late = self.aborted
        if late:
            callback()
