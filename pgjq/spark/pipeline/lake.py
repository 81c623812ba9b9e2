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
import json
import os
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import unquote, urlsplit

from pgjq.errors import StorageError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Iterable, Mapping

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"
CHECKPOINT: Final = "checkpoint"
LOCK: Final = "lock"
GLOB: Final = frozenset("*?[]{}\\")
JOBS: Final = "jobs"
# Tables with a directory per day, and tables that are replaced as a whole.
DAILY: Final = ("metrics", "days", "errors", "workers")
WHOLE: Final = ("advice", "anomalies")


@dataclass(frozen=True, slots=True)
class Batch:
    """Endings of one batch: their directory, their number, and the days on which they ended."""

    name: str
    rows: int
    dates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of the lake; other tables cover `measured` batches and come from named runs."""

    batches: tuple[Batch, ...] = ()
    measured: int = 0
    days: Mapping[str, str] = field(default_factory=dict[str, str])
    whole: str | None = None
    runs: int = 0

    def with_batch(self, batch: Batch) -> Manifest:
        """Add a batch."""
        return replace(self, batches=(*self.batches, batch))

    def with_run(self, name: str, dates: Iterable[str]) -> Manifest:
        """Use a run's tables, which cover all batches, for the days that it measured."""
        days = {**self.days, **dict.fromkeys(dates, name)}
        return replace(self, measured=len(self.batches), days=days, whole=name, runs=self.runs + 1)

    def unmeasured(self) -> list[str]:
        """List the days with endings that the other tables do not cover yet."""
        return sorted({date for batch in self.batches[self.measured :] for date in batch.dates})

    def has(self, batch: str) -> bool:
        """Return whether the lake has a batch."""
        return any(batch == there.name for there in self.batches)

    def directories(self, table: str, dates: Collection[str] | None = None) -> list[str]:
        """List the directories of a table, or of some of its days."""
        if table in WHOLE:
            return [f"{table}/{self.whole}"] if self.whole else []
        if table == JOBS:
            named = [(date, batch.name) for batch in self.batches for date in batch.dates]
        else:
            named = sorted(self.days.items())
        return [f"{table}/{name}/date={date}" for date, name in named if dates is None or date in dates]


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
        return cls(root, _read(root / MANIFEST))

    @staticmethod
    def check(place: str) -> Path:
        """Return the path of a lake or a place for one; refuse a directory with other content."""
        root = _path(place)
        _refuse_others(root)
        if (root / MANIFEST).exists():
            _read(root / MANIFEST)
        return root

    @classmethod
    @contextmanager
    def writing(cls, place: str) -> Generator[Self]:
        """Open a lake for exclusive writing; an empty directory becomes one."""
        root = cls.check(place)
        root.mkdir(parents=True, exist_ok=True)
        with _locked(root):
            if not (root / MANIFEST).exists():
                _write(root / MANIFEST, Manifest())
            lake = cls(root, _read(root / MANIFEST))
            lake.sweep()
            try:
                yield lake
            finally:
                lake.sweep()

    def publish(self, manifest: Manifest) -> None:
        """Replace the content of the lake by a manifest, atomically."""
        _write(self.root / MANIFEST, manifest)
        self.manifest = manifest

    def path(self, directory: str) -> str:
        """Return a directory as Spark names it: a URL without encoding."""
        return f"file://{self.root / directory}"

    def sweep(self) -> None:
        """Remove what belongs to no table: the manifest does not name it.

        Files that a desktop or a file server adds are kept. If a removal fails, the next run tries again.
        """
        tables = (JOBS, *DAILY, *WHOLE)
        kept = {self.root / name for table in tables for name in self.manifest.directories(table)}
        kept |= {path.parent for path in kept}
        for table in tables:
            parts = set((self.root / table).glob("*=*"))
            days = {day for part in parts & kept for day in part.glob("date=*") if table not in WHOLE}
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


@contextmanager
def _locked(root: Path) -> Generator[None]:
    with (root / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise StorageError(f"another run is writing to the lake in {root}; wait for it, or stop it") from error
        yield


def _read(path: Path) -> Manifest:
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = told.pop("format") == FORMAT
        batches = tuple(Batch(b["name"], b["rows"], tuple(b["dates"])) for b in told.pop("batches"))
        manifest = Manifest(batches=batches, **told)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValidationError(f"{path} is not the manifest of a lake ({error}); name another directory") from error
    if not known:
        raise ValidationError(f"{path} was written by another version of pgjq; upgrade pgjq, or name a new lake")
    return manifest


def _write(path: Path, manifest: Manifest) -> None:
    """Write a manifest beside the old one and rename it: there is always a complete one."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
