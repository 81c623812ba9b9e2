"""The lock of a directory, among all threads and processes of the machine.

* It is `flock` on a file: the kernel releases it when its holder ends, however it ends.
* It is held for one operation, without the wait for the disk.
* A caller that does not get it for a long time, or until its deadline (`pgjq.deadline`), raises an error that names the
  holder: a process that is stopped in the middle of an operation, or a foreign one.
* Other users cannot open the file, and so cannot lock it.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pgjq.deadline import acquire_in_time, current_deadline
from pgjq.errors import StorageUnavailableError, storage_closed
from pgjq.storage.file import disk

if TYPE_CHECKING:
    from pgjq.storage.file.layout import Layout

PATIENCE = 30.0
PAUSE, LONGEST_PAUSE = 0.0002, 0.005


class Mutex:
    """The lock of a directory. A thread takes `turn`, the lock of its process, first."""

    def __init__(self, layout: Layout) -> None:
        self.turn = threading.Lock()
        self.patience = PATIENCE
        self._layout = layout
        self._path = layout.lock
        self._fd: int | None = None
        self._closed = False

    def __enter__(self) -> None:
        began = time.monotonic()
        if not acquire_in_time(self.turn, self.patience):
            raise self._refusal(began)
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
        """Close the file for good, with `turn` held: a waiting thread opens no new one."""
        self._closed = True
        self.abandon()

    def abandon(self) -> None:
        """Close the file; in a forked child the parent keeps its lock."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def _lock(self) -> None:
        if self._closed:
            raise storage_closed()
        began, deadline = time.monotonic(), current_deadline()
        pause = PAUSE
        while True:
            fd = self._open()
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() > min(began + self.patience, deadline.until):
                    raise self._refusal(began) from None
                time.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)
                continue
            if os.fstat(fd).st_nlink:
                return
            self.abandon()  # The file was removed; other processes now lock a new one.

    def _open(self) -> int:
        if self._fd is None:
            self._layout.directory.mkdir(disk.PRIVATE_FOLDER, parents=True, exist_ok=True)
            self._layout.check()
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            self._fd = os.open(self._path, flags, disk.PRIVATE_FILE)
            disk.make_private(self._fd)
        return self._fd

    def _refusal(self, began: float) -> StorageUnavailableError:
        return StorageUnavailableError(
            f"{find_holder(self._path)} has kept {self._path} locked for {time.monotonic() - began:.0f} s;"
            f" is it stopped? (fuser {self._path})"
        )


def find_holder(path: Path) -> str:
    """Name the process that has a file locked, on systems with /proc/locks (Linux)."""
    with suppress(OSError, LookupError, ValueError):
        inode = str(path.stat().st_ino)
        locks = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
        holders = [lock[4] for lock in locks if lock[1] == "FLOCK" and lock[5].rpartition(":")[2] == inode]
        process = Path("/proc") / holders[0]
        return f"process {process.name} ({(process / 'comm').read_text().strip()}, user {process.stat().st_uid})"
    return "another process"
