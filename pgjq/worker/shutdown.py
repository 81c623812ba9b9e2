"""Graceful shutdown on signals: the first one requests it, a second one exits at once.

Ctrl-C reaches every process of a terminal, and a service manager may signal all processes of a service. So a supervisor
does not pass requests on by a signal, which would count as the second (`pgjq.worker.supervisor`).
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pgjq.background import BackgroundThread

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

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
        self._loop, self._event = asyncio.get_running_loop(), asyncio.Event()
        self._guard: ExitGuard | None = None
        _on_signal(self._ask)

    def _ask(self) -> None:
        if self._guard is not None:
            self._guard.begin()
        self._loop.call_soon_threadsafe(self._event.set)

    @contextmanager
    def guarded(self, is_blocked: Callable[[], bool], patience: float, give_up: Callable[[], None]) -> Generator[None]:
        """Exit if a signal finds the loop blocked for `patience` seconds; see `ExitGuard`."""
        self._guard = guard = ExitGuard(is_blocked, patience, give_up)
        try:
            yield
        finally:
            self._guard = None
            guard.end()

    async def wait(self) -> None:
        """Wait until SIGTERM or SIGINT."""
        # The wait is unbounded and misses nothing: only signals can end it, and their handler runs on this loop's own
        # thread.
        await self._event.wait()


class ExitGuard:
    """Exits when a stop cannot begin: a coroutine blocks the main thread's event loop.

    `begin` starts the time; after `patience` seconds the guard's thread checks `is_blocked`, calls `give_up` if so, and
    exits. A pipe wakes the thread: `begin` is called by a signal handler, which must not wait for a lock.
    """

    def __init__(self, is_blocked: Callable[[], bool], patience: float, give_up: Callable[[], None]) -> None:
        self._is_blocked, self._patience, self._give_up = is_blocked, patience, give_up
        self._read, self._write = os.pipe()
        self._thread = BackgroundThread("pgjq exit guard", self._run)
        self._thread.start()

    def begin(self) -> None:
        """Start the time; a signal has asked for a stop."""
        os.write(self._write, b"b")

    def end(self) -> None:
        """End the thread: the stop has ended."""
        os.write(self._write, b"e")
        self._thread.join()
        os.close(self._read)
        os.close(self._write)

    def _run(self) -> None:
        if os.read(self._read, 1) == b"e":  # Unbounded, and misses nothing: the pipe keeps what was written.
            return
        while not select.select([self._read], [], [], self._patience)[0]:
            if self._is_blocked():
                try:
                    self._give_up()
                finally:
                    os._exit(1)


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
