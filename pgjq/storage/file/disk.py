"""Files that are there whole or not at all, also after the power failed."""

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
    new = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    fd = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        for part in parts:
            write_all(fd, part)
        os.fsync(fd)
        size = os.fstat(fd).st_size
        os.rename(new, path)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    finally:
        os.close(fd)
    sync_directory(path.parent)
    return size


def sync_directory(path: Path) -> None:
    """Make names in a directory last."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
