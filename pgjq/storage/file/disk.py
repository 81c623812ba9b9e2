"""Files that are there whole or not at all, also after a power failure; written under the directory's lock.

Only the owner may read or write them: payloads and results are in there, and an outsider who can open a file can
also lock it.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Where there is no fdatasync, fsync does that and a little more.
sync_data = getattr(os, "fdatasync", os.fsync)


PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700
OTHERS: Final = 0o077


def make_private(path: Path | int) -> None:
    """Close a file or a folder of ours, or an open one, to others: older versions left them readable."""
    found = os.stat(path)  # noqa: PTH116  (of an open file, too)
    if found.st_mode & OTHERS and found.st_uid == os.geteuid():
        os.chmod(path, stat.S_IMODE(found.st_mode) & ~OTHERS)  # noqa: PTH101


def write_all(fd: int, data: bytes) -> None:
    """Write all of it: a disk that is nearly full takes a part."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def replace(path: Path, parts: Iterable[bytes]) -> int:
    """Put a new file in the place of another in one step, and return its size."""
    new = temporary(path)
    size = _write(new, parts)
    new.rename(path)
    sync_directory(path.parent)
    return size


def create(path: Path, parts: Iterable[bytes]) -> None:
    """Make a file in one step; FileExistsError if there is one."""
    new = temporary(path)
    _write(new, parts)
    path.hardlink_to(new)
    new.unlink()
    sync_directory(path.parent)


def temporary(path: Path) -> Path:
    """Name what will become a file. The next one to write the same file finds the remains, and overwrites them."""
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
    """Make names in a directory last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
