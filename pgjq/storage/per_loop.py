"""A value for each event loop, such as its connections, which no other loop can use."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes a value for a loop at its first use, and forgets the values of closed loops. Thread-safe."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the running loop's value."""
        loop = asyncio.get_running_loop()
        value = self._values.get(loop)
        if value is None:
            with self._lock:
                self._values = {known: held for known, held in self._values.items() if not known.is_closed()}
                value = self._values[loop] = self._make()
        return value

    def pop(self) -> T | None:
        """Remove and return the running loop's value, if it has one."""
        with self._lock:
            return self._values.pop(asyncio.get_running_loop(), None)

    def pop_all(self) -> dict[asyncio.AbstractEventLoop, T]:
        """Remove and return all values, from any thread."""
        with self._lock:
            values, self._values = self._values, {}
        return values

    def values(self) -> list[T]:
        """Return the values of all loops."""
        return list(self._values.values())
