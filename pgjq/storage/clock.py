"""The clock of a storage with jobs in memory, and how it wakes workers when it is moved.

A sleeping worker naps until the next job is due, in real seconds. A clock that is moved makes that nap too long:

* The machine's clock runs by itself. A nap ends after `MACHINE_NAP` at the latest, in case the clock was set ahead or
  the machine was suspended.
* An `ObservableClock` calls its subscribers when it is moved, and they check again at once.
* Any other function may jump at any time without notice: it is read again after `PLAIN_NAP`.

While no job is delayed, no nap depends on the clock, and none is cut short.
"""

from __future__ import annotations

import math
import weakref
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Protocol, TypeVar, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable

Owner = TypeVar("Owner")

MACHINE_NAP: Final = 60.0
PLAIN_NAP: Final = 0.1
LEAST_NAP: Final = 0.001  # A clock that stops just before a job is due must not keep a core busy.


@runtime_checkable
class ObservableClock(Protocol):
    """A clock that calls its subscribers when it is moved."""

    def __call__(self) -> datetime:
        """Return the time, as an aware datetime."""
        ...

    def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
        """Call `moved` after every move, on any thread; return a function that ends this."""
        ...


class StorageClock:
    """The clock of one storage, its owner; calls `moved(owner)` after a move, if observable.

    The clock holds only a weak reference to the owner: it may outlive many storages that were never closed.
    """

    def __init__(self, clock: Callable[[], datetime] | None, owner: Owner, moved: Callable[[Owner], None]) -> None:
        self.now = clock or machine_time
        self._longest_nap = MACHINE_NAP if clock is None else PLAIN_NAP
        if isinstance(clock, ObservableClock):
            self._longest_nap = math.inf
            reference = weakref.ref(owner)
            end = clock.subscribe(lambda: _call_with(reference, moved))
            weakref.finalize(owner, end).atexit = False

    def recheck_after(self, seconds_until_due: float | None) -> float:
        """Return the real seconds after which a sleeper must check again for a job due then."""
        if seconds_until_due is None:
            return math.inf
        return min(max(seconds_until_due, LEAST_NAP), self._longest_nap)


def _call_with(reference: weakref.ref[Owner], moved: Callable[[Owner], None]) -> None:
    owner = reference()
    if owner is not None:
        moved(owner)


def machine_time() -> datetime:
    """Return the machine's time."""
    return datetime.now(UTC)
