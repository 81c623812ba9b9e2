"""A value for each event loop, such as its connections, which no other loop can use."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


class PerLoop(Generic[T]):
    """Makes a value for a loop at first use, and drops those of closed loops. Thread-safe.

    `forget` is called for each closed loop. No value is made while another thread removes them.
    """

    def __init__(self, make: Callable[[], T], forget: Callable[[], None] = lambda: None) -> None:
        self._make = make
        self._forget = forget
        self._lock = threading.Lock()
        self._values: dict[asyncio.AbstractEventLoop, T] = {}

    def get(self) -> T:
        """Return the running loop's value."""
        value = self.peek()
        if value is None:
            with self._lock:
                self._forget_closed_loops()
                value = self._values[asyncio.get_running_loop()] = self._make()
        return value

    def peek(self) -> T | None:
        """Return the running loop's value, if it has one."""
        return self._values.get(asyncio.get_running_loop())

    def pop(self) -> T | None:
        """Remove and return the running loop's value, if it has one."""
        with self._lock:
            return self._values.pop(asyncio.get_running_loop(), None)

    def pop_all(self) -> dict[asyncio.AbstractEventLoop, T]:
        """Remove and return all values, from any thread."""
        with self._lock:
            values, self._values = self._values, {}
        return values

    def items(self) -> list[tuple[asyncio.AbstractEventLoop, T]]:
        """Return all loops with their values."""
        return list(self._values.items())

    def values(self) -> list[T]:
        """Return the values of all loops."""
        return list(self._values.values())

    def _forget_closed_loops(self) -> None:
        for loop in [loop for loop in self._values if loop.is_closed()]:
            del self._values[loop]
            self._forget()
