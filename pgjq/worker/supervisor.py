"""Several worker processes and one that watches over them.

The supervisor is a process of its own with a single thread, so it can fork safely at any time. A worker that dies is
replaced, at once if it lived for a while, after a pause that doubles if not. The supervisor ends its workers when it is
told to, and when whoever started it is gone: a pipe that nobody writes to closes then.
"""

from __future__ import annotations

import math
import mmap
import os
import select
import signal
import struct
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    started: float = 0.0
    pause: float = PAUSE
    due: float = 0.0


class Supervisor:
    """Keeps `count` processes running that each call `work`, with what tells the grace given to it at the end."""

    def __init__(self, count: int, work: Callable[[Callable[[], float | None]], None], logger: logging.Logger) -> None:
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
        os.close(self._lifeline)
        os.waitpid(self._pid, 0)

    def _supervise(self, heir: int) -> None:
        os.close(self._lifeline)
        signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
        while not select.select([heir], [], [], 0)[0]:
            self._bury()
            self._fill(heir)
            caught = signal.sigtimedwait(SIGNALS, TICK)
            if caught is not None and caught.si_signo != signal.SIGCHLD:
                break
        self._end()

    def _fill(self, heir: int) -> None:
        now = time.monotonic()
        for place in self._places:
            if place.pid is None and place.due <= now:
                place.pid, place.started = _fork(lambda: self._be_worker(heir)), now

    def _be_worker(self, heir: int) -> None:
        os.close(heir)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        self._work(self._told_grace)

    def _told_grace(self) -> float | None:
        (grace,) = GRACE.unpack(self._grace[:])
        return None if math.isnan(grace) else grace

    def _bury(self) -> None:
        for place in self._places:
            if place.pid is not None and (ended := os.waitpid(place.pid, os.WNOHANG))[0]:
                lived = time.monotonic() - place.started
                self._logger.warning(
                    "worker process ended, starting another", extra={"pid": place.pid, "status": ended[1]}
                )
                place.pause = PAUSE if lived >= LIVED else min(place.pause * 2, LONGEST_PAUSE)
                place.pid, place.due = None, time.monotonic() + (0 if lived >= LIVED else place.pause)

    def _end(self) -> None:
        pids = [place.pid for place in self._places if place.pid is not None]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        for pid in pids:
            os.waitpid(pid, 0)


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
