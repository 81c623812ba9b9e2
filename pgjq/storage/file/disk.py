"""Files that are there whole or not at all, also after a power failure; written under the directory's lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

# Where there is no fdatasync, fsync does that and a little more.
sync_data = getattr(os, "fdatasync", os.fsync)


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
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
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
