"""One at a time in a directory, among all threads and processes of the machine.

The lock is `flock` on a file: the kernel lets go of it when its holder ends, however it ends. It is held for the length
of one operation, without the wait for the disk. Whoever cannot have it for a long time says so instead of hanging: then
a process is stopped in the middle of an operation.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from typing import TYPE_CHECKING

from pgjq.errors import StorageUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

PATIENCE = 30.0
PAUSE, LONGEST_PAUSE = 0.0002, 0.005


class Mutex:
    """The lock of a directory. Threads take turns before they ask the kernel."""

    def __init__(self, path: Path) -> None:
        self.turn = threading.Lock()
        self._path = path
        self._fd: int | None = None

    def __enter__(self) -> None:
        if not self.turn.acquire(timeout=PATIENCE):
            raise self._refusal()
        try:
            self._lock()
        except BaseException:
            self.turn.release()
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if self._fd is not None:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
        finally:
            self.turn.release()

    def close(self) -> None:
        """Close the file; in a forked child that leaves the parent's lock alone."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    abandon = close

    def _lock(self) -> None:
        until = time.monotonic() + PATIENCE
        pause = PAUSE
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > until:
                    raise self._refusal() from None
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            if os.fstat(fd).st_nlink:
                return
            self.close()  # Somebody removed the file; those who come now lock another one.

    def _open(self) -> int:
        if self._fd is None:
            self._path.parent.mkdir(0o700, parents=True, exist_ok=True)
            self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        return self._fd

    def _refusal(self) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"another process has kept {self._path} locked for {PATIENCE:g} s; is it stopped? (fuser {self._path})"
        )
