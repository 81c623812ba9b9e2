"""Wakeup pipes: notify the other processes of a directory of a change at once.

* A process that waits makes a named pipe in `notifications/` and blocks on it; a process that changed something writes
  to all pipes there. Opening a pipe without a reader fails, and the pipe is removed.
* A wakeup may get lost, so the waiting process also checks now and then.
* Blocking on a pipe costs nothing and wakes within 0.1 ms; watching a directory would poll it every few milliseconds.
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

FLOOR = 0.25  # Seconds between two checks without a wakeup.
POLL_FLOOR = 0.02  # The same on a file system without named pipes.

logger = logging.getLogger("pgjq")


def wake(folder: Path, *, but: str | None = None) -> None:
    """Write to every wakeup pipe except `but`, the caller's own; ignore pipes that fail."""
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208  (runs at every operation, at half the cost of iterdir)
            if name.endswith(".notify") and not name.startswith(".") and name != but:
                _wake(folder / name)


def _wake(path: Path) -> None:
    try:
        fd = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # The pipe has no reader: its process has ended.
            path.unlink(missing_ok=True)
        return
    try:
        if stat.S_ISFIFO(os.fstat(fd).st_mode):
            os.write(fd, b"!")
    except BlockingIOError:
        return  # The pipe is full, so a wakeup is pending.
    finally:
        os.close(fd)


class WakeupPipe:
    """This process's pipe, and a thread that calls `woken` at each wakeup and now and then."""

    def __init__(self, folder: Path, woken: Callable[[], None]) -> None:
        self._woken = woken
        self._stopped = threading.Event()
        self._path = folder / f"{os.getpid()}-{uuid4().hex[:8]}.notify"
        self._fd = self._open()
        self._thread = BackgroundThread("pgjq wakeup", self._listen, self._stopped.wait)
        self._thread.start()

    @property
    def name(self) -> str:
        """The pipe's file name."""
        return self._path.name

    def _open(self) -> int | None:
        """Make and open the pipe under a hidden name, so that it never appears without a reader."""
        hidden = self._path.with_name(f".{self._path.name}")
        try:
            os.mkfifo(hidden, disk.PRIVATE_FILE)
        except OSError as error:
            logger.warning("no named pipes in %s, so workers poll for jobs: %s", hidden.parent, error)
            return None
        # Open for reading and writing: without a writer, the reader would see the end of the file.
        fd = os.open(hidden, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        hidden.rename(self._path)
        return fd

    def _listen(self) -> None:
        waiting = select.poll()
        if self._fd is not None:
            waiting.register(self._fd, select.POLLIN)
        while not self._stopped.is_set():
            self._thread.touch()
            if waiting.poll((FLOOR if self._fd is not None else POLL_FLOOR) * 1000) and self._fd is not None:
                os.read(self._fd, 1 << 16)
            if not self._stopped.is_set():
                self._woken()

    def close(self) -> None:
        """Remove the pipe and end the thread."""
        self._stopped.set()
        if self._fd is not None:
            self._path.unlink(missing_ok=True)
            with contextlib.suppress(BlockingIOError):
                os.write(self._fd, b"!")
        self._thread.join()
        self.abandon()

    def abandon(self) -> None:
        """Close the pipe without removing it: in a forked child it belongs to the parent."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None
