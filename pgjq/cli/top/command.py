"""The command and its loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import click
from rich.console import Console, ConsoleDimensions
from rich.live import Live

from pgjq.cli.command_group import Refusal
from pgjq.cli.open_storage import kind_of, with_storage
from pgjq.cli.param_types import DURATION
from pgjq.cli.top.actions import act
from pgjq.cli.top.drawing import draw
from pgjq.cli.top.keys import decode, key_presses, pressed
from pgjq.cli.top.model import Screen, press, show
from pgjq.cli.top.reading import read
from pgjq.client import AsyncClient
from pgjq.generic_inspection import inspection_of

if TYPE_CHECKING:
    from pgjq.storage.base import Storage

ESCAPE_SECONDS: Final = 0.1  # An escape that nothing follows for so long is the key, not the beginning of another.
DOCTOR_SECONDS: Final = 10.0
SMALLEST: Final = (40, 10)


@click.command()
@click.option("--interval", type=DURATION, default=2.0, show_default=True, help="Seconds between two reads.")
@with_storage
def top(storage: Storage, *, interval: float) -> None:
    """Watch queues, failures, workers and findings in the terminal, and steer them with keys.

    Arrow keys select, enter opens a queue, f shows failures, w workers, d the doctor's findings. p pauses or resumes
    the selected queue, r retries and c cancels the selected job, each after a y; every action is written down as those
    of the web page are. q quits.

    \b
    Examples:
      pgjq top
      pgjq top --interval 5
    """  # noqa: D301
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refusal("pgjq top needs a terminal; pgjq queues, pgjq workers and pgjq doctor work without one")
    asyncio.run(_Top(storage, max(interval, 0.1)).run())


class _Top:
    """One screen, until it is left."""

    def __init__(self, storage: Storage, interval: float) -> None:
        self._storage = storage
        self._client = AsyncClient(storage)
        self._inspection = inspection_of(storage)
        self._interval = interval
        self._screen = Screen()
        self._console = Console(highlight=False)
        self._stale = asyncio.Event()
        self._left = asyncio.Event()
        self._unread = b""
        self._escape: asyncio.TimerHandle | None = None
        self._acting: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Draw, read and obey keys, until a key ends it."""
        loop = asyncio.get_running_loop()
        live = Live(console=self._console, screen=True, auto_refresh=False, redirect_stdout=False)
        with key_presses() as terminal, live:
            self._live = live
            loop.add_reader(terminal, self._keys, terminal)
            for number in (signal.SIGTERM, signal.SIGHUP):
                loop.add_signal_handler(number, self._left.set)
            loop.add_signal_handler(signal.SIGWINCH, self._draw)
            reading = loop.create_task(self._read())
            try:
                await self._left.wait()
            finally:
                loop.remove_reader(terminal)
                await _end(reading, *self._acting)
                await self._storage.operations("async").close()

    def _draw(self) -> None:
        # Asked of the terminal: COLUMNS and LINES of the environment do not follow a window.
        width, height = (max(*pair) for pair in zip(os.get_terminal_size(), SMALLEST, strict=True))
        self._console.size = ConsoleDimensions(width, height)
        self._live.update(draw(self._screen, kind_of(self._storage), width, height), refresh=True)

    async def _read(self) -> None:
        while True:
            self._stale.clear()
            asked = self._screen
            self._draw()
            facts = await read(self._storage, self._inspection, asked)
            if (asked.view, asked.queue) == (self._screen.view, self._screen.queue):
                self._screen = show(self._screen, facts)
                self._draw()
            seconds = max(self._interval, DOCTOR_SECONDS) if self._screen.view == "doctor" else self._interval
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stale.wait(), seconds)

    def _keys(self, terminal: int) -> None:
        data = pressed(terminal)
        if not data:
            self._left.set()
            return
        if self._escape is not None:
            self._escape.cancel()
        names, self._unread = decode(self._unread + data)
        if self._unread:
            self._escape = asyncio.get_running_loop().call_later(ESCAPE_SECONDS, self._press_escape)
        self._press(names)

    def _press_escape(self) -> None:
        self._unread = b""
        self._press(["escape"])

    def _press(self, names: list[str]) -> None:
        before = self._screen
        for name in names:
            self._screen = press(self._screen, name)
            if self._screen.wanted is not None:
                self._begin()
        if self._screen.is_over:
            self._left.set()
            return
        if (before.view, before.queue) != (self._screen.view, self._screen.queue):
            self._stale.set()
        self._draw()

    def _begin(self) -> None:
        action, self._screen = self._screen.wanted, replace(self._screen, wanted=None)
        if action is None:
            return

        async def acting() -> None:
            message = await act(self._client, self._inspection, action)
            self._screen = replace(self._screen, message=message)
            self._stale.set()
            self._draw()

        task = asyncio.get_running_loop().create_task(acting())
        self._acting.add(task)
        task.add_done_callback(self._acting.discard)


async def _end(reading: asyncio.Task[None], *acting: asyncio.Task[None]) -> None:
    """Stop reading; let actions that have begun end."""
    reading.cancel()
    await asyncio.gather(reading, *acting, return_exceptions=True)
