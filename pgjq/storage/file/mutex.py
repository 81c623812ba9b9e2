"""One at a time in a directory, among all threads and processes of the machine.

The lock is `flock` on a file: the kernel lets go of it when its holder ends, however it ends. It is held for the length
of one operation, without the wait for the disk. A process that cannot have it for a long time, or until its caller's
deadline (`pgjq.deadline`), raises an error that names the holder instead of hanging: a process that is stopped in the
middle of an operation, or one that has nothing to do with pgjq. Other users cannot open the file, and so they cannot
lock it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pgjq.deadline import current_deadline
from pgjq.errors import StorageUnavailableError
from pgjq.storage.file import disk

if TYPE_CHECKING:
    from pgjq.storage.file.layout import Layout

PATIENCE = 30.0
LOOK_SECONDS = 0.25  # A worker that stops moves the deadline of calls that wait already.
PAUSE, LONGEST_PAUSE = 0.0002, 0.005


class Mutex:
    """The lock of a directory. Threads take turns before they ask the kernel."""

    def __init__(self, layout: Layout) -> None:
        self.turn = threading.Lock()
        self._layout = layout
        self._path = layout.lock
        self._fd: int | None = None

    def __enter__(self) -> None:
        until = time.monotonic() + PATIENCE
        while not self.turn.acquire(timeout=LOOK_SECONDS):
            self._refuse_if_late(until)
        try:
            self._lock(until)
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

    def _lock(self, until: float) -> None:
        pause = PAUSE
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                self._refuse_if_late(until)
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            if os.fstat(fd).st_nlink:
                return
            self.close()  # Somebody removed the file; those who come now lock another one.

    def _open(self) -> int:
        if self._fd is None:
            self._layout.directory.mkdir(disk.PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._layout.check()
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, disk.PRIVATE_FILE)
            disk.make_private(self._fd)
        return self._fd

    def _refuse_if_late(self, until: float) -> None:
        """Raise an error after a long wait, or earlier if the caller's own deadline is over."""
        if time.monotonic() > min(until, current_deadline().until):
            waited = PATIENCE - max(0.0, until - time.monotonic())
            raise StorageUnavailableError(
                f"{find_holder(self._path)} has kept {self._path} locked for {waited:.2g} s;"
                f" is it stopped? (fuser {self._path})"
            )


def find_holder(path: Path) -> str:
    """Name the process that has a file locked, where the system tells: Linux does, in /proc/locks."""
    with suppress(OSError, LookupError, ValueError):
        inode = str(path.stat().st_ino)
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        holders = [lock[4] for lock in locks if lock[1] == "FLOCK" and lock[5].rpartition(":")[2] == inode]
        process = Path("/proc") / holders[0]
        return f"process {process.name} ({(process / 'comm').read_text().strip()}, user {process.stat().st_uid})"
    return "another process"
