"""From a signal of the operating system to a graceful end. The first asks for it; a second one exits now."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)
# Ctrl-C reaches every process of a terminal, and a supervisor passes its own word on: within a second it is one wish.
SAME = 1.0


class Asked:
    """Whether this process was asked to end. Made before anything is started, so that no signal finds it unprepared."""

    def __init__(self) -> None:
        self._event = threading.Event()
        _on_signal(self._event.set)

    def wait(self) -> None:
        """Block the main thread until SIGTERM or SIGINT."""
        # Python runs signal handlers between two waits, not within a wait that has no end.
        while not self._event.wait(0.5):
            pass


class AsyncAsked:
    """The same, for the main thread's event loop."""

    def __init__(self) -> None:
        loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        _on_signal(lambda: loop.call_soon_threadsafe(self._event.set))

    async def wait(self) -> None:
        """Wait until SIGTERM or SIGINT."""
        await self._event.wait()


def _on_signal(ask: Callable[[], Any]) -> None:
    first: float | None = None

    def handle(number: int, _frame: object) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = now
            ask()
        elif now - first > SAME:
            os._exit(128 + number)

    for number in SIGNALS:
        signal.signal(number, handle)
