"""Graceful shutdown on signals: the first one requests it, a second one exits at once.

Ctrl-C reaches every process of a terminal, and a service manager may signal all processes of a service. So a supervisor
does not pass requests on by a signal, which would count as the second (`pgjq.worker.supervisor`).
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """Whether this process should end. Create it before anything starts, to miss no signal."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self.ask = self._event.set
        _on_signal(self.ask)

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Block the main thread until SIGTERM or SIGINT, or until `is_over`."""
        # Python runs signal handlers between two waits, not within an unbounded wait.
        while not (self._event.wait(0.5) or is_over()):
            pass


class AsyncStopRequest:
    """The same, for the main thread's event loop."""

    def __init__(self) -> None:
        loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        _on_signal(lambda: loop.call_soon_threadsafe(self._event.set))

    async def wait(self) -> None:
        """Wait until SIGTERM or SIGINT."""
        # The wait is unbounded and misses nothing: only signals can end it, and their handler runs on this loop's own
        # thread.
        await self._event.wait()


def _on_signal(ask: Callable[[], Any]) -> None:
    asked = False

    def handle(number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        ask()

    for number in SIGNALS:
        signal.signal(number, handle)
