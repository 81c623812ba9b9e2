"""The paths in the directory, and the handling of files that do not belong there.

* At the first use a directory with other files is refused, so that pgjq never takes a foreign file for its own.
* After that, files that pgjq did not create, or cannot read, are reported and moved to `aside`, which it never reads.
* Hidden files and `lost+found` are left alone.
"""

from __future__ import annotations

import logging
import os
import stat
import time
from typing import TYPE_CHECKING

from pgjq.errors import StorageError
from pgjq.storage.file import disk

if TYPE_CHECKING:
    from pathlib import Path

logger = logging.getLogger("pgjq")

ROOT = 0
STRANGE = frozenset(("lost+found",))
FOLDERS = {"workers": ".worker", "leaders": ".lock", "notifications": ".notify"}


class Layout:
    """The paths in one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.journal = directory / "journal"
        self.lock = directory / "journal.lock"
        self.workers = directory / "workers"
        self.leaders = directory / "leaders"
        self.notifications = directory / "notifications"
        self.aside = directory / "aside"
        self._ours = {self.journal.name, self.lock.name, self.aside.name, *FOLDERS}

    def check(self) -> None:
        """Refuse a directory in which another user could replace files; warn if its group could."""
        found = self.directory.stat()
        if found.st_uid not in (os.geteuid(), ROOT):
            message = (
                f"{self.directory} belongs to user {found.st_uid}, and this process runs as user {os.geteuid()};"
                " run it as the owner, change the owner, or name another directory"
            )
            raise StorageError(message)
        if found.st_mode & stat.S_IWOTH:
            message = f"every user may write to {self.directory}: chmod 700 it, or name a directory inside of it"
            raise StorageError(message)
        if found.st_mode & stat.S_IWGRP:
            logger.warning("the group of %s may replace files in it; chmod 700 keeps them yours", self.directory)

    def prepare(self) -> None:
        """Make the folders, under the lock; refuse a directory with other files, or tidy up pgjq's."""
        foreign = [path for path in self._visible(self.directory) if path.name not in self._ours]
        if foreign and not self.journal.exists():
            message = f"{self.directory} holds other things ({foreign[0].name}); name an empty or a new directory"
            raise StorageError(message)
        for name in (*FOLDERS, self.aside.name):
            (self.directory / name).mkdir(disk.PRIVATE_FOLDER, exist_ok=True)
            disk.make_private(self.directory / name)
        disk.sync_directory(self.directory.parent)
        for name, suffix in FOLDERS.items():
            folder = self.directory / name
            foreign += [path for path in self._visible(folder) if path.suffix != suffix]
            for remains in folder.glob(".*.tmp"):
                remains.unlink()
        for path in foreign:
            self.move_aside(path, "this is none of pgjq's files")

    def keep_aside(self, path: Path, why: str) -> None:
        """Link a file that is about to be replaced into `aside`, and log it."""
        kept = self._aside(path)
        os.link(path, kept)
        logger.warning("%s: %s; kept as %s", path, why, kept)

    def move_aside(self, path: Path, why: str) -> None:
        """Move a file into `aside`, and log it."""
        kept = self._aside(path)
        path.rename(kept)
        logger.warning("%s: %s; moved to %s", path, why, kept)

    def _aside(self, path: Path) -> Path:
        return self.aside / f"{path.name}.{time.time_ns():x}"

    def _visible(self, folder: Path) -> list[Path]:
        """List a folder without hidden files and those of the file system."""
        return sorted(path for path in folder.iterdir() if not path.name.startswith(".") and path.name not in STRANGE)
