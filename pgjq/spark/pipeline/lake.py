"""The lake: a directory of tables, and the manifest that lists what belongs to them.

A directory becomes a lake by `manifest.json`, which names every directory of Parquet files that belongs to a table.
A directory that it does not name does not count: it is left over from a killed run, or was replaced by a later one,
and the next run removes it. Named files never change. So a table changes at the moment in which a new manifest is
renamed over the old one, all tables of a step at once, and a run may be killed at any point:

* before the rename, the lake is unchanged, and the next run repeats the step;
* after it, the step is done, and the next run continues from there.

One run at a time: a second one finds the lock of the first and is refused. The kernel releases the lock of a process
that dies.
"""

from __future__ import annotations

import fcntl
import shutil
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self
from urllib.parse import unquote, urlsplit

from pgjq.errors import StorageError, ValidationError
from pgjq.spark.pipeline.manifest import QUARANTINE, TABLES, WHOLE, Manifest, read_manifest, write_manifest

if TYPE_CHECKING:
    from collections.abc import Generator

MANIFEST: Final = "manifest.json"
LOCK: Final = "lock"
GLOB: Final = frozenset("*?[]{}\\")


class Lake:
    """A lake and its manifest as last read."""

    def __init__(self, root: Path, manifest: Manifest) -> None:
        self.root = root
        self.manifest = manifest

    @classmethod
    def open(cls, place: str) -> Self:
        """Open a lake for reading."""
        root = _path(place)
        if not (root / MANIFEST).is_file():
            raise ValidationError(f"there is no lake in {root}: pgjq pipeline run makes one")
        return cls(root, read_manifest(root / MANIFEST))

    @staticmethod
    def check(place: str) -> Path:
        """Return the path of a lake or a place for one; refuse a directory with other content."""
        root = _path(place)
        _refuse_others(root)
        if (root / MANIFEST).exists():
            read_manifest(root / MANIFEST)
        return root

    @classmethod
    @contextmanager
    def writing(cls, place: str) -> Generator[Self]:
        """Open a lake for exclusive writing; an empty directory becomes one."""
        root = cls.check(place)
        root.mkdir(parents=True, exist_ok=True, mode=0o700)  # It has ids, and messages of errors.
        with _locked(root):
            if not (root / MANIFEST).exists():
                _close_to_others(root)
                write_manifest(root / MANIFEST, Manifest())
            lake = cls(root, read_manifest(root / MANIFEST))
            lake.sweep()
            try:
                yield lake
            finally:
                lake.sweep()

    def publish(self, manifest: Manifest) -> None:
        """Replace the content of the lake by a manifest, atomically."""
        write_manifest(self.root / MANIFEST, manifest)
        self.manifest = manifest

    def path(self, directory: str) -> str:
        """Return a directory as Spark names it: a URL without encoding."""
        return f"file://{self.root / directory}"

    def sweep(self) -> None:
        """Remove what belongs to no table: the manifest does not name it.

        Files that a desktop or a file server adds are kept. If a removal fails, the next run tries again.
        """
        kept = {self.root / name for table in TABLES for name in self.manifest.directories(table)}
        kept |= {path.parent for path in kept}
        for table in TABLES:
            parts = set((self.root / table).glob("*=*"))
            days = {day for part in parts & kept for day in part.glob("date=*") if table not in (QUARANTINE, *WHOLE)}
            for leftover in (parts | days) - kept:
                shutil.rmtree(leftover, ignore_errors=True)


def _path(place: str) -> Path:
    parts = urlsplit(place)
    if parts.scheme not in ("", "file"):
        raise ValidationError(
            f"a lake is a directory, on a cluster one that all its machines share, not a {parts.scheme}: URL"
        )
    path = Path(unquote(parts.path) if parts.scheme else place).expanduser()
    if path.exists() and not path.is_dir():
        raise ValidationError(f"{path} is a file; a lake is a directory")
    if GLOB.intersection(str(path.resolve())):
        raise ValidationError(
            f"Spark reads {' '.join(sorted(GLOB))} in the name of a directory as wildcards; name another lake"
        )
    return path.resolve()


def _refuse_others(root: Path) -> None:
    """Check that a directory is a lake or empty, before anything is written to it."""
    if root.is_dir() and not (root / MANIFEST).is_file():
        found = sorted(path.name for path in root.iterdir() if path.name not in (LOCK, f"{MANIFEST}.new"))
        if found:
            raise ValidationError(
                f"{root} is not a lake and not empty: it holds {', '.join(found[:3])}"
                f"{' and more' if len(found) > 3 else ''}. Name a new directory."  # noqa: PLR2004
            )


def _close_to_others(root: Path) -> None:
    """Remove the permissions of others from an empty directory that becomes a lake.

    A group keeps its permissions.
    """
    with suppress(PermissionError):  # Another user's directory, which that user has opened.
        root.chmod(root.stat().st_mode & ~0o007 & 0o7777)


@contextmanager
def _locked(root: Path) -> Generator[None]:
    with (root / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(f"another run is writing to the lake in {root}; wait for it, or stop it") from error
        yield
