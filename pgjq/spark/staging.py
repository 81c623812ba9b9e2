"""Copy Arrow batches to a stage: one COPY in one transaction, all rows or none."""

from __future__ import annotations

import re
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError, ValidationError
from pgjq.spark.adbc import append, connect, read
from pgjq.spark.job_rows import staged
from pgjq.spark.lazy_imports import adbc, pa
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.queries_with_literals import write as literal

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator

    from pgjq.spark.options import Options


NAMED_BYTES: Final = 32 * 1024 * 1024
# The position in the server's message, in any language: "COPY stage_…, line 2, column payload".
_PLACE: Final = re.compile(r"COPY stage_\w+, \S+ (\d+), \S+ (\w+)")
_NO_JSON: Final = "22P02"
_TOO_DEEP: Final = "54001"


def fill_stage(options: Options, write: str, batches: Iterator[Any]) -> tuple[str | None, int]:
    """Copy all rows to a new stage of a write; return its name and the number of rows."""
    ready = Checked(staged(batch for batch in batches if batch.num_rows))
    first = next(ready, None)
    if first is None:
        return None, 0
    try:
        with stage_connection(options, write) as (connection, stage):
            rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], ready))
            append(connection, options.schema, stage, rows)
    except (adbc.Error, pa.ArrowException) as error:
        raise ready.refused or translated(error, ready.name) from error
    return stage, ready.count


@contextmanager
def stage_connection(options: Options, write: str) -> Generator[tuple[Any, str]]:
    """Create a stage of a write, and commit it at the end of the block."""
    with connect(options.conninfo) as connection:
        connection.set_autocommit(False)
        ((stage,),) = read(connection, Queries(options.schema).written("create_stage", {"write": literal(write)}))
        yield connection, stage.as_py()
        connection.commit()


class Checked:
    """Batches that count rows and keep their ids: the server names a refused row by number.

    It does so when all rows have been sent. Ids beyond some megabytes are not kept.
    """

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._ids: list[Any] = []
        self._room = NAMED_BYTES
        self.count = 0
        self.refused: ValidationError | None = None

    def __iter__(self) -> Checked:
        return self

    def __next__(self) -> Any:
        try:
            batch = next(self._batches)
        except ValidationError as error:
            self.refused = error
            raise
        self.count += batch.num_rows
        self._room -= batch.column("id").nbytes
        if self._room >= 0:
            self._ids.append(batch.column("id"))
        return batch

    def name(self, row: int) -> str:
        """Return the job of a row for messages; the first row is 1."""
        ids = pa.chunked_array(self._ids, pa.string())
        return f"job {ids[row - 1].as_py()!r}" if row <= len(ids) else f"the job in row {row} of a task"


def translated(error: Exception, name: Callable[[int], str]) -> Exception:
    """Convert an error: an invalid row, which `name` describes, or a failure of the server."""
    said = str(error)
    if place := find_refused_row(error):
        wrong = "is not JSON" if getattr(error, "sqlstate", None) == _NO_JSON else "cannot be stored"
        return ValidationError(f"the {place[1]} of {name(place[0])} {wrong}: {_reason(said)}")
    if "could not connect" in said or "connection" in said.lower():
        return StorageUnavailableError(said)
    return StorageError(said)


def find_refused_row(error: Exception) -> tuple[int, str] | None:
    """Return the number of the row that the server refused, from 1, and its column."""
    place, code = _PLACE.search(str(error)), getattr(error, "sqlstate", None) or ""
    if place is None or not (code.startswith("22") or code == _TOO_DEEP):
        return None
    return int(place[1]), place[2]


def _reason(said: str) -> str:
    """Extract the server's message and detail from the driver's message."""
    lines = [line.partition(":  ")[2] for line in said.splitlines() if ":  " in line]
    return "; ".join(lines[:2])
