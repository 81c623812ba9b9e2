"""Bells: how a process learns at once that another one changed something.

Whoever waits hangs up a bell, a named pipe in `notifications/`, and blocks on it; whoever changed something rings all
that hang there. A bell without a process behind it says so when it is rung, and is taken down. A ring is a hint and may
get lost, so the one who waits looks for itself now and then. Blocking on a pipe costs nothing and wakes within a tenth
of a millisecond, where watching a directory would wake by looking at it every few.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import select
import stat
import threading
from typing import TYPE_CHECKING
from uuid import uuid4

from pgjq.background import BackgroundThread
from pgjq.storage.file import disk

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FLOOR = 0.25  # Seconds between two looks when nothing rings.
DEAF_FLOOR = 0.02  # The same on a file system that has no named pipes.

logger = logging.getLogger("pgjq")


def wake(folder: Path, *, but: str | None = None) -> None:
    """Ring every bell but one's own; what cannot be rung is no trouble of the one who rings."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208  (this is done at every operation, and costs half)
            if name.endswith(".notify") and not name.startswith(".") and name != but:
                _wake(folder / name)


def _wake(path: Path) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # Nobody is there to hear it.
            path.unlink(missing_ok=True)
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"!")
    except BlockingIOError:
        return  # It rings already.
    finally:
        os.close(fd)


class WakeupPipe:
    """This process's bell, and a thread that calls `heard` when it rings and now and then."""

    def __init__(self, folder: Path, heard: Callable[[], None]) -> None:
        self._heard = heard
        self._stopped = threading.Event()
        self._path = folder / f"{os.getpid()}-{uuid4().hex[:8]}.notify"
        self._fd = self._hang()
        self._thread = BackgroundThread("pgjq bell", self._listen, self._stopped.wait)
        self._thread.start()

    @property
    def name(self) -> str:
        """What it hangs under."""
        return self._path.name

    def _hang(self) -> int | None:
        """Make the pipe under a hidden name and open it first, so that it never hangs there without an ear."""
        hidden = self._path.with_name(f".{self._path.name}")
        try:
            os.mkfifo(hidden, disk.PRIVATE_FILE)
        except OSError as error:
            logger.warning("no named pipes in %s, so jobs are found by looking: %s", hidden.parent, error)
            return None
        # Open for both, it never ends: without somebody who writes, a reader would see the end of the file.
        fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        hidden.rename(self._path)
        return fd

    def _listen(self) -> None:
        waiting = select.poll()
        if self._fd is not None:
            waiting.register(self._fd, select.POLLIN)
        while not self._stopped.is_set():
            self._thread.touch()
            if waiting.poll((FLOOR if self._fd is not None else DEAF_FLOOR) * 1000) and self._fd is not None:
                os.read(self._fd, 1 << 16)
            if not self._stopped.is_set():
                self._heard()

    def close(self) -> None:
        """Take the bell down and end the thread."""
        self._stopped.set()
        if self._fd is not None:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(BlockingIOError):
                os.write(self._fd, b"!")
        self._thread.join()
        self.abandon()

    def abandon(self) -> None:
        """Close the pipe; in a forked child, which has no such thread, the bell stays the parent's."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
