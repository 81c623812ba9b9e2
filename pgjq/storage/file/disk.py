"""Write files atomically, also across a power failure; callers hold the directory's lock.

Only the owner may read or write the files: they contain payloads and results, and a user who can open a file can also
lock it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Systems without fdatasync use fsync, which also syncs the metadata.
sync_data = getattr(os, "fdatasync", os.fsync)


PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
OTHERS: Final = 0o077


def make_private(path: Path | int) -> None:
    """Take other users' rights off a path or an open file of this user.

    Older versions left files readable.
    """
    found = os.stat(path)  # noqa: PTH116  (accepts a file descriptor, too)
    if found.st_mode & OTHERS and found.st_uid == os.geteuid():
        os.chmod(path, stat.S_IMODE(found.st_mode) & ~OTHERS)  # noqa: PTH101


def write_all(fd: int, data: bytes) -> None:
    """Write all data; one write to a nearly full disk may store a part of it."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def replace(path: Path, parts: Iterable[bytes]) -> int:
    """Replace or create a file atomically, and return its size."""
    new = temporary(path)
    size = _write(new, parts)
    new.rename(path)
    sync_directory(path.parent)
    return size


def create(path: Path, parts: Iterable[bytes]) -> None:
    """Create a file atomically; FileExistsError if there is one."""
    new = temporary(path)
    _write(new, parts)
    path.hardlink_to(new)
    new.unlink()
    sync_directory(path.parent)


def temporary(path: Path) -> Path:
    """Name the temporary file of a file; the next write overwrites what a crash has left in it."""
    return path.with_name(f".{path.name}.tmp")


def _write(path: Path, parts: Iterable[bytes]) -> int:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, PRIVATE_FILE)
    try:
        for part in parts:
            write_all(fd, part)
        os.fsync(fd)
        return os.fstat(fd).st_size
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
