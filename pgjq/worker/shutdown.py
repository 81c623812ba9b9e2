"""From a signal of the operating system to a graceful end. The first asks for it; a second one exits now."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

SIGNALS = (signal.SIGTERM, signal.SIGINT)


async def until_signalled() -> None:
    """Wait for SIGTERM or SIGINT on the main thread's event loop."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    with _handlers(lambda: loop.call_soon_threadsafe(asked.set)):
        await asked.wait()


def wait_until_signalled() -> None:
    """Block the main thread until SIGTERM or SIGINT."""
    asked = threading.Event()
    with _handlers(asked.set):
        # Python runs signal handlers between two waits, not within a wait that has no end.
        while not asked.wait(0.5):
            pass


@contextmanager
def _handlers(ask: Callable[[], Any]) -> Generator[None]:
    """Take the signals for as long as somebody waits for them, and for the shutdown that follows."""
    asked = False

    def handle(number: int, _frame: object) -> None:
        nonlocal asked
        if asked:
            os._exit(128 + number)
        asked = True
        ask()

    for number in SIGNALS:
        signal.signal(number, handle)
    yield
