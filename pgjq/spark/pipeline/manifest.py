"""The manifest of a lake: which directories belong to its tables."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

FORMAT: Final = 2
JOBS: Final = "jobs"
QUARANTINE: Final = "quarantine"
# Tables with a directory per day, and tables that are replaced as a whole.
DAILY: Final = ("metrics", "days", "errors", "workers")
WHOLE: Final = ("advice", "anomalies")
TABLES: Final = (JOBS, QUARANTINE, *DAILY, *WHOLE)
MERGED: Final = 24  # Batches of a level that are merged into one of the next.


@dataclass(frozen=True, slots=True)
class Batch:
    """Endings of one run, or of many merged ones: their directory, and their number on each day."""

    name: str
    numbers: tuple[int, int]  # Of the first and the last batch in it.
    days: Mapping[str, int]
    quarantined: int = 0
    level: int = 0  # How often its endings were merged.

    @property
    def rows(self) -> int:
        """The number of endings in `jobs`."""
        return sum(self.days.values())


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of the lake; other tables cover `measured` batches and come from named runs."""

    batches: tuple[Batch, ...] = ()
    newest: int = -1  # The number of the last batch that was published.
    offset: dict[str, Any] | None = None  # Of the stream of endings: the lake has all before it.
    measured: int = 0
    days: Mapping[str, str] = field(default_factory=dict[str, str])
    whole: str | None = None
    runs: int = 0

    def with_batch(self, batch: Batch, offset: dict[str, Any] | None = None) -> Manifest:
        """Add a batch, unless it is empty, and the offset of the stream at its end."""
        if not batch.days and not batch.quarantined:
            return replace(self, offset=offset)
        return replace(self, batches=(*self.batches, batch), newest=batch.numbers[1], offset=offset)

    def with_run(self, name: str, dates: Iterable[str]) -> Manifest:
        """Use a run's tables, which cover all batches, for the days that it measured."""
        days = {**self.days, **dict.fromkeys(dates, name)}
        return replace(self, measured=len(self.batches), days=days, whole=name, runs=self.runs + 1)

    def with_merged(self, merged: Batch, parts: Collection[Batch]) -> Manifest:
        """Replace measured batches by one that has all their endings."""
        names = {batch.name for batch in parts}
        place = next(n for n, batch in enumerate(self.batches) if batch.name in names)
        kept = [batch for batch in self.batches if batch.name not in names]
        batches = (*kept[:place], merged, *kept[place:])
        return replace(self, batches=batches, measured=len(batches))

    def since(self, first: str) -> Manifest:
        """Leave out the days before one."""
        batches = [replace(b, days={day: rows for day, rows in b.days.items() if day >= first}) for b in self.batches]
        kept = tuple(batch for batch in batches if batch.days)
        days = {day: name for day, name in self.days.items() if day >= first}
        return replace(self, batches=kept, measured=len(kept), days=days)

    def mergeable(self) -> list[Batch]:
        """Return the batches of the lowest level that has enough of them, or none."""
        levels = Counter(batch.level for batch in self.batches[: self.measured])
        level = min((level for level, count in levels.items() if count >= MERGED), default=None)
        return [batch for batch in self.batches[: self.measured] if batch.level == level]

    def unmeasured(self) -> list[str]:
        """List the days with endings that the other tables do not cover yet."""
        return sorted({date for batch in self.batches[self.measured :] for date in batch.days})

    def directories(self, table: str, dates: Collection[str] | None = None) -> list[str]:
        """List the directories of a table, or of some of its days."""
        if table in WHOLE:
            return [f"{table}/{self.whole}"] if self.whole else []
        if table == QUARANTINE:
            return [f"{table}/{batch.name}" for batch in self.batches if batch.quarantined]
        if table == JOBS:
            named = [(date, batch.name) for batch in self.batches for date in batch.days]
        else:
            named = sorted(self.days.items())
        return [f"{table}/{name}/date={date}" for date, name in named if dates is None or date in dates]


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; raise ValidationError if the file is not one, or of another version."""
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        known = told.pop("format") == FORMAT
        batches = tuple(_batch(batch) for batch in told.pop("batches")) if known else ()
        manifest = Manifest(batches=batches, **told) if known else Manifest()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValidationError(f"{path} is not the manifest of a lake ({error}); name another directory") from error
    if not known:
        raise ValidationError(f"{path} was written by another version of pgjq; upgrade pgjq, or name a new lake")
    return manifest


def _batch(told: dict[str, Any]) -> Batch:
    first, last = told.pop("numbers")
    return Batch(numbers=(first, last), **told)


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write a manifest beside the old one and rename it: there is always a complete one."""
    new = path.with_name(f"{path.name}.new")
    with new.open("w", encoding="utf-8") as file:
        json.dump({"format": FORMAT, **asdict(manifest)}, file, indent=1)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
