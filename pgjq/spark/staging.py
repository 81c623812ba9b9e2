"""From Arrow batches onto a stage: one COPY in one transaction, which leaves a whole stage or none."""

from __future__ import annotations

import json
from itertools import chain
from typing import TYPE_CHECKING, Any

from pgjq.errors import StorageError, StorageUnavailableError, ValidationError
from pgjq.spark.jobs import staged
from pgjq.spark.untyped import adbc, pa
from pgjq.storage.postgres.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.spark.options import Options


def fill_stage(options: Options, batches: Iterator[Any]) -> tuple[str | None, int]:
    """Put all rows onto a new stage; return its name and how many they are."""
    ready = Checked(staged(batch for batch in batches if batch.num_rows))
    first = next(ready, None)
    if first is None:
        return None, 0
    try:
        with adbc.connect(options.conninfo) as connection, connection.cursor() as cursor:
            cursor.execute(Queries(options.schema).written("create_stage", {}))
            stage = cursor.fetchone()[0]
            rows = pa.RecordBatchReader.from_batches(first.schema, chain([first], ready))
            cursor.adbc_ingest(stage, rows, mode="append", db_schema_name=options.schema)
            connection.commit()
    except (adbc.Error, pa.ArrowException) as error:
        raise _understood(error, ready) from error
    return stage, ready.count


class Checked:
    """Batches that remember how many rows they were, and the last of them, in which an error was."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self.count = 0
        self.last: Any = None
        self.refused: ValidationError | None = None

    def __iter__(self) -> Checked:
        return self

    def __next__(self) -> Any:
        try:
            self.last = next(self._batches)
        except ValidationError as error:
            self.refused = error
            raise
        self.count += self.last.num_rows
        return self.last


def _understood(error: Exception, ready: Checked) -> Exception:
    """Say what was wrong in our words: a row that cannot be a job, or the server."""
    if ready.refused is not None:
        return ready.refused
    said = str(error)
    if "22P02" in said or "22P05" in said or "json" in said:
        return ValidationError(_wrong_json(ready.last) or said)
    if "could not connect" in said or "connection" in said.lower():
        return StorageUnavailableError(said)
    return StorageError(said)


def _wrong_json(batch: Any) -> str | None:
    """Find the job whose payload is no JSON."""
    if batch is None:
        return None
    for job, payload in zip(batch.column("id").to_pylist(), batch.column("payload").to_pylist(), strict=True):
        try:
            json.loads(payload)
        except ValueError as error:
            return f"the payload of job {job!r} is not JSON: {error}"
    return None
