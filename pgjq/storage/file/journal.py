"""The journal: one file, to which every operation appends one line.

Guarantees, whenever a process or the machine stops:

* A line counts once it is complete, with newline and checksum. Only the holder of the directory's lock appends, so
  bytes after the last complete line are of a process that died before it reported success; they are cut off.
* Lines become durable in order: a sync covers all lines written before. So an operation may build on lines that are
  not on the disk yet, and syncs them with its own.
* The file is replaced atomically by a shorter one with the same content (`replace`). Processes that have the old one
  open notice it by its link count of 0. Opening a journal syncs the directory, in case the process that replaced the
  file died before it did.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from typing import TYPE_CHECKING, Any

from pgjq.storage.file import disk
from pgjq.storage.file.journal_format import decode_line

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHUNK = 1 << 20


class Journal:
    """An open journal, read up to `end`."""

    def __init__(self, path: Path) -> None:
        self.end = 0
        self.torn = False  # There are bytes after the last complete line.
        self.damaged = False  # There was an invalid line between valid ones.
        self.is_suspect = False  # A sync failed: lines that can be read may not be on the disk.
        self._path = path
        self._synced = 0
        self._closed = False
        self._syncing = threading.Lock()
        self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
        disk.make_private(self._fd)
        disk.sync_directory(path.parent)

    @property
    def state(self) -> tuple[bool, int]:
        """Whether the file is still the current journal, and its size."""
        found = os.fstat(self._fd)
        return found.st_nlink > 0, found.st_size

    @property
    def continues(self) -> bool:
        """Whether a line still ends at `end`; if not, another program has cut the file off."""
        return self.end == 0 or os.pread(self._fd, 1, self.end - 1) == b"\n"

    def read(self) -> Iterator[dict[str, Any]]:
        """Read the new lines; set `damaged` if one is invalid."""
        for line, end in self._split():
            content = decode_line(line)
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
        """Remove the bytes after the last complete line."""
        os.ftruncate(self._fd, self.end)
        self.torn = False

    def append(self, line: bytes) -> None:
        """Append a line completely or not at all."""
        try:
            disk.write_all(self._fd, line)
        except BaseException:
            self.cut()
            raise
        self.end += len(line)

    def sync(self, end: int) -> None:
        """Make everything up to `end` durable. One sync serves all threads that wait for it."""
        with self._syncing:
            if self._synced < end:
                self._sync()

    def _sync(self) -> None:
        if self._closed:
            raise OSError(errno.EIO, "the disk failed before this entry was written")
        reached = self.end
        try:
            disk.sync_data(self._fd)
        except OSError:
            # The kernel reports such a failure once; a later success would prove nothing about these lines.
            self.is_suspect = True
            raise
        self._synced = reached

    def reach(self, end: int) -> None:
        """Count everything up to `end` as read and synced: its content is on the disk elsewhere."""
        self.end = self._synced = end

    def close(self) -> None:
        """Sync lines that other threads may wait for, and close the file."""
        with self._syncing, contextlib.suppress(OSError):
            if not self._closed and self._synced < self.end:
                self._sync()
        with self._syncing:
            self.abandon()
            self._closed = True

    def abandon(self) -> None:
        """Close the file without syncing, as in a forked child."""
        if not self._closed:
            os.close(self._fd)
