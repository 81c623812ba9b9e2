"""Translate errors of the operating system into storage errors that name a remedy."""

from __future__ import annotations

import errno
from contextlib import contextmanager
from typing import TYPE_CHECKING

from pgjq.errors import StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path

REMEDIES = {
    errno.ENOSPC: "the disk is full; make room, and it goes on",
    errno.EDQUOT: "the disk quota is used up; make room, and it goes on",
    errno.EFBIG: "the journal may not grow any more; raise the limit on the size of files",
    errno.EROFS: "the disk is read-only; mount it for writing, or name another directory",
    errno.EACCES: "this user may not write there; change the directory's permissions or owner, or name another one",
    errno.EPERM: "this user may not write there; change the directory's permissions or owner, or name another one",
    errno.ENOTDIR: "something on the way to it is not a directory",
    errno.EEXIST: "something on the way to it is not a directory",
    errno.EISDIR: "a directory has the name of a file of it; move that away",
    errno.ELOOP: "a link on the way to it leads back to itself",
    errno.EMFILE: "this process has too many files open; raise the limit (ulimit -n)",
}
# A retry cannot help with these before a user has changed the directory.
PERMANENT = {errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}


@contextmanager
def translated(directory: Path) -> Generator[None]:
    """Raise a StorageError for an OSError inside the block."""
    try:
        yield
    except OSError as error:
        remedy = REMEDIES.get(error.errno or 0, "see the cause")
        kind = StorageError if error.errno in PERMANENT else StorageUnavailableError
        raise kind(f"the storage in {directory} failed: {error.strerror or error}: {remedy}") from error
