"""The lake as Delta tables, on a disk or in object storage, for readers without pgjq.

The lake's directory stays where a run works. After each run its tables are brought up to date at another place, one
Delta table each. A commit of a Delta table is atomic, and names the last batch or run that it has brought (Delta's
application transactions); so a run that is killed here is continued by the next one, and nothing comes twice. Delta-rs
writes the tables without Java.

* Endings and the quarantine grow: new batches are appended. If the lake has merged some of them with older ones since,
  the table is written anew, in one commit.
* Of the daily tables, the days that were measured since are replaced.
* The other tables are replaced.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import MissingExtraError, StorageError
from pgjq.spark.pipeline.manifest import DAILY, JOBS, MERGED, QUARANTINE, WHOLE

if TYPE_CHECKING:
    from collections.abc import Collection

    from pgjq.spark.pipeline.lake import Lake

APP: Final = "pgjq"


def publish(lake: Lake, place: str) -> dict[str, int]:
    """Bring the Delta tables below a path or URL up to date with a lake; return their versions."""
    delta, manifest = _delta(), lake.manifest
    tables = {name: _Table(delta, f"{place.rstrip('/')}/{name}") for name in (JOBS, QUARANTINE, *DAILY, *WHOLE)}
    try:
        for name in (JOBS, QUARANTINE):
            _grow(lake, tables[name], name)
        for name in DAILY:
            seen = tables[name].seen
            days = [day for day, run in manifest.days.items() if int(run.partition("=")[2]) > seen]
            _replace(lake, tables[name], name, days)
        for name in WHOLE:
            if tables[name].seen < manifest.runs:
                _replace(lake, tables[name], name, None)
        return {name: table.tidy(min(manifest.days, default=None)) for name, table in tables.items() if table.exists}
    except (delta.exceptions.DeltaError, OSError) as error:
        raise StorageError(f"the Delta tables in {place} could not be written: {error}") from error


class _Table:
    """A Delta table, and how much of the lake it has."""

    def __init__(self, delta: Any, place: str) -> None:
        self._delta = delta
        self._place = place
        self.exists: bool = delta.DeltaTable.is_deltatable(place)
        known = delta.DeltaTable(place).transaction_version(APP) if self.exists else None
        self.seen: int = -1 if known is None else known

    def write(self, rows: Any, seen: int, **how: Any) -> None:
        """Write rows in one commit, which says that it has brought everything up to `seen`."""
        mark = self._delta.CommitProperties(app_transactions=[self._delta.Transaction(APP, seen)])
        self._delta.write_deltalake(self._place, rows, commit_properties=mark, **how)
        self.exists, self.seen = True, seen

    def tidy(self, first: str | None) -> int:
        """Remove days before the first, merge small files now and then; return the version."""
        table = self._delta.DeltaTable(self._place)
        if first is not None and any(part["date"] < first for part in table.partitions() if part.get("date")):
            table.delete(f"date < '{first}'")
        if table.version() and table.version() % MERGED == 0:
            table.optimize.compact()
            table.vacuum(dry_run=False)  # Files that no version of the last seven days has.
        return table.version()


def _grow(lake: Lake, table: _Table, name: str) -> None:
    manifest = lake.manifest
    if table.seen >= manifest.newest:
        return
    new = [batch for batch in manifest.batches if batch.numbers[1] > table.seen]
    anew = any(batch.numbers[0] <= table.seen for batch in new)
    names = {batch.name for batch in (manifest.batches if anew else new)}
    found = [d for d in manifest.directories(name) if d.split("/")[1] in names]
    if found:
        how = {"mode": "overwrite" if anew else "append"}
        if name == JOBS:
            how["partition_by"] = "date"
        table.write(_rows(lake, name, found), manifest.newest, **how)


def _replace(lake: Lake, table: _Table, name: str, days: Collection[str] | None) -> None:
    """Replace a table, or some of its days."""
    found = [place for place in lake.manifest.directories(name, days) if any((lake.root / place).glob("*.parquet"))]
    if not found:
        return
    how: dict[str, Any] = {"mode": "overwrite"}
    if days is not None:
        how["partition_by"] = "date"
        if table.exists:
            how["predicate"] = " or ".join(f"date = '{day}'" for day in sorted(days))
    table.write(_rows(lake, name, found), lake.manifest.runs, **how)


def _rows(lake: Lake, name: str, directories: Collection[str]) -> Any:
    """Read directories of a table as a stream of Arrow batches."""
    pa, ds = import_module("pyarrow"), import_module("pyarrow.dataset")
    files = [str(file) for directory in directories for file in sorted((lake.root / directory).glob("*.parquet"))]
    names = [part.partition("=")[0] for part in next(iter(directories)).split("/")[1:]]
    kinds = pa.schema([(column, pa.date32() if column == "date" else pa.string()) for column in names])
    layout = ds.partitioning(kinds, flavor="hive")
    source = ds.dataset(files, format="parquet", partitioning=layout, partition_base_dir=str(lake.root / name))
    return source.scanner(columns=[column for column in source.schema.names if column != names[0]]).to_reader()


def _delta() -> Any:
    try:
        module: Any = import_module("deltalake")
        import_module("deltalake.exceptions")
    except ImportError as error:
        raise MissingExtraError("delta") from error
    return module
