"""Several worker processes and one that watches over them.

The supervisor is a process of its own with a single thread, so it can fork safely at any time. A worker that dies is
replaced, at once if it lived for a while, after a pause that doubles if not.

How they end
* `stop` writes a byte into the pipe between the process that started the supervisor and the supervisor. The end of that
  pipe without a byte says that this process is gone. Either, or a signal, makes the supervisor end its workers.
* Each worker has a pipe from the supervisor, which closes when the workers should stop, or when the supervisor is gone.
  It is no signal: a signal to the whole process group, such as Ctrl-C, is the first signal for each process in it.
* A second signal, or the end of the process that called `stop` before `stop` returned, kills the workers.
"""

from __future__ import annotations

import math
import mmap
import os
import select
import signal
import struct
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgjq.worker.shutdown import Asked

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

SIGNALS = {signal.SIGTERM, signal.SIGINT, signal.SIGCHLD}
LIVED = 10.0
PAUSE = 0.1
LONGEST_PAUSE = 10.0
TICK = 0.5
GRACE = struct.Struct("d")


@dataclass(slots=True)
class _Place:
    """One of the processes, or the gap that it left."""

    pid: int | None = None
    lifeline: int = -1
    started: float = 0.0
    pause: float = PAUSE
    due: float = 0.0

    def let_go(self) -> None:
        """Close the pipe to the process, which stops then."""
        if self.lifeline >= 0:
            os.close(self.lifeline)
            self.lifeline = -1


class Supervisor:
    """Keeps `count` processes running that each call `work`, with what asks it to stop and the grace given then."""

    def __init__(
        self, count: int, work: Callable[[Asked, Callable[[], float | None]], None], logger: logging.Logger
    ) -> None:
        self._places = [_Place() for _ in range(count)]
        self._work = work
        self._logger = logger
        self._grace = mmap.mmap(-1, GRACE.size)  # Shared by all that are forked from here.
        self._grace[:] = GRACE.pack(math.nan)
        heir, self._lifeline = os.pipe()
        self._pid = _fork(lambda: self._supervise(heir))
        os.close(heir)

    def stop(self, grace: float | None) -> None:
        """End the workers and wait for them; unless told otherwise, each gives its jobs the grace it was made with."""
        self._grace[:] = GRACE.pack(math.nan if grace is None else grace)
        with suppress(BrokenPipeError):  # The supervisor was killed, and its workers have stopped for that.
            os.write(self._lifeline, b".")
        os.waitpid(self._pid, 0)
        os.close(self._lifeline)

    def _supervise(self, heir: int) -> None:
        os.close(self._lifeline)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        orders = _Orders(heir)
        while not orders.to_stop:
            self._bury()
            self._fill(heir)
            orders.wait()
        self._end(orders)

    def _fill(self, heir: int) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.pid is None and place.due <= now:
                mine, place.lifeline = os.pipe()
                place.pid, place.started = _fork(lambda mine=mine: self._be_worker(heir, mine)), now
                os.close(mine)

    def _be_worker(self, heir: int, mine: int) -> None:
        os.close(heir)
        for place in self._places:
            place.let_go()
        asked = Asked()  # Before signals come through: those that the supervisor blocked are for its children, too.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        threading.Thread(target=_ask_at_end, args=(mine, asked), name="pgjq supervisor watch", daemon=True).start()
        self._work(asked, self._told_grace)

    def _told_grace(self) -> float | None:
        (grace,) = GRACE.unpack(self._grace[:])
        return None if math.isnan(grace) else grace

    def _bury(self) -> None:
        for place in self._places:
            if place.pid is not None and (ended := os.waitpid(place.pid, os.WNOHANG))[0]:
                place.let_go()
                lived = time.monotonic() - place.started
                self._logger.warning(
                    "worker process ended, starting another", extra={"pid": place.pid, "status": ended[1]}
                )
                place.pause = PAUSE if lived >= LIVED else min(place.pause * 2, LONGEST_PAUSE)
                place.pid, place.due = None, time.monotonic() + (0 if lived >= LIVED else place.pause)

    def _end(self, orders: _Orders) -> None:
        for place in self._places:
            place.let_go()
        left = {place.pid for place in self._places if place.pid is not None}
        while left := {pid for pid in left if not os.waitpid(pid, os.WNOHANG)[0]}:
            if orders.to_kill:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            orders.wait()


class _Orders:
    """What the supervisor was told: by signals, and through the pipe from the process that started it."""

    def __init__(self, heir: int) -> None:
        self._heir = heir
        self._signals = 0
        self._stopped = False
        self._orphaned = False

    @property
    def to_stop(self) -> bool:
        return self._signals > 0 or self._stopped or self._orphaned

    @property
    def to_kill(self) -> bool:
        return self._signals > 1 or (self._stopped and self._orphaned)

    def wait(self) -> None:
        """Wait a moment for an order or for the end of a worker."""
        caught = signal.sigtimedwait(SIGNALS, TICK)
        self._signals += caught is not None and caught.si_signo != signal.SIGCHLD
        while not self._orphaned and select.select([self._heir], [], [], 0)[0]:
            if os.read(self._heir, 1):
                self._stopped = True
            else:
                self._orphaned = True


def _ask_at_end(pipe: int, asked: Asked) -> None:
    """Ask this process to stop when a pipe closes that nothing is written to."""
    os.read(pipe, 1)
    asked.ask()


def _fork(child: Callable[[], None]) -> int:
    """Fork; the child does its work and leaves without running what its parent registered for its own exit."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        child()
        status = 0
    finally:
        os._exit(status)
