"""The journal: one file, to which every operation appends one line.

What it promises, whenever a process or the machine ends:

* A line counts once it is whole, newline and checksum included. Only the holder of the directory's lock appends, so
  what follows the last whole line was left by somebody who died, was never answered for, and is cut off.
* Lines last in their order: syncing the file makes all of them last that were written before. So an operation may be
  built on lines that are not on the disk yet, and syncs them with its own.
* The file is replaced in one step by a shorter one that says the same (`replace`). Its old inode then has no name, by
  which everybody who has it open can tell. Whoever opens a journal syncs the directory, in case that whoever put it
  there did not live to do it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

from pgjq.storage.file import disk
from pgjq.storage.file.journal_format import unseal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1 << 20


class Journal:
    """An open journal, read up to `end`."""

    def __init__(self, path: Path) -> None:
        self.end = 0
        self.torn = False  # There is something after the last whole line.
        self.damaged = False  # There was something between whole lines.
        self.is_suspect = False  # The disk failed to take something that may look as if it had been taken.
        self._path = path
        self._synced = 0
        self._closed = False
        self._syncing = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        disk.make_private(self._fd)
        disk.sync_directory(path.parent)

    @property
    def state(self) -> tuple[bool, int]:
        """Whether it is the journal still, and its size."""
        found = os.fstat(self._fd)
        return found.st_nlink > 0, found.st_size

    @property
    def continues(self) -> bool:
        """Whether a line still ends where the last one that was read did; else somebody has cut the file off before."""
        return self.end == 0 or os.pread(self._fd, 1, self.end - 1) == b"\n"

    def read(self) -> Iterator[dict[str, Any]]:
        """Read the lines that are new, and take note of what is no line."""
        for line, end in self._split():
            content = unseal(line)
            if content is None:
                self.damaged = True
                continue
            self.end = end
            yield content

    def _split(self) -> Iterator[tuple[bytes, int]]:
        position, rest = self.end, b""
        while chunk := os.pread(self._fd, max(CHUNK, len(rest)), position):
            position += len(chunk)
            *lines, rest = (rest + chunk).split(b"\n")
            end = position - len(rest)
            starts = end - sum(len(line) + 1 for line in lines)
            for line in lines:
                starts += len(line) + 1
                yield line, starts
        self.torn = bool(rest)

    def cut(self) -> None:
        """Remove what is after the last whole line."""
        os.ftruncate(self._fd, self.end)
        self.torn = False

    def append(self, line: bytes) -> None:
        """Add a line, whole or not at all."""
        try:
            disk.write_all(self._fd, line)
        except BaseException:
            self.cut()
            raise
        self.end += len(line)

    def sync(self, end: int) -> None:
        """Make everything last up to `end`. Of threads that come at the same time, one does it for all."""
        with self._syncing:
            if self._synced < end:
                self._sync()

    def _sync(self) -> None:
        if self._closed:
            raise OSError(errno.EIO, "the disk failed while this was on its way to it")
        reached = self.end
        try:
            disk.sync_data(self._fd)
        except OSError:
            # The kernel forgets such a failure; a later success would say nothing about these lines.
            self.is_suspect = True
            raise
        self._synced = reached

    def reach(self, end: int) -> None:
        """Take as read and synced what is on the disk in some other way."""
        self.end = self._synced = end

    def close(self) -> None:
        """Sync what others may be waiting for, and close the file."""
        with self._syncing, contextlib.suppress(OSError):
            if not self._closed and self._synced < self.end:
                self._sync()
        with self._syncing:
            self.abandon()
            self._closed = True

    def abandon(self) -> None:
        """Close the file; in a forked child, nothing else."""
        if not self._closed:
            os.close(self._fd)
