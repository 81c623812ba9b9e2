"""Rows of a write that cannot be jobs, with the reason, for `pgjq.quarantine`.

A batch is converted and copied as a whole. If that fails, it is converted row by row, and each row that fails is put
aside with its error. If the server refuses a row, which it names by its number, the copy of that batch is undone, the
row is put aside together with all others that are not JSON, and the rest is copied again. Undoing takes savepoints,
which ADBC has not, so the rows go through psycopg.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError
from pgjq.spark.job_rows import stage_batch, stage_schema
from pgjq.spark.lazy_imports import pa
from pgjq.spark.staging import find_refused_row, translated
from pgjq.storage.postgres.oneshot import oneshot_connection
from pgjq.storage.postgres.stage_copy import RefusedRowsError, copy_to_stage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgjq.spark.options import Options

KEPT: Final = 10_000  # Characters of the payload.


def fill_with_quarantine(options: Options, write: str, batches: Iterator[Any]) -> tuple[str | None, int]:
    """Copy rows to a new stage, bad ones with reasons; return its name and the valid rows."""
    stage, valid = "", 0
    with oneshot_connection(options.conninfo, options.schema) as here, here.transaction():

        def copy(rows: Any) -> None:
            columns = (column.to_pylist() for column in rows.columns)
            copy_to_stage(here, options.schema, stage, zip(*columns, strict=True))

        for batch in batches:
            if not stage and batch.num_rows:
                ((stage,),) = here.fetch("create_stage", {"write": write})
            good, bad = _sort(batch)
            copied, more = _copy_valid(copy, good)
            valid += copied
            if bad or more:
                copy(_aside(bad + more))
    return stage or None, valid


def _copy_valid(copy: Callable[[Any], None], rows: Any) -> tuple[int, list[dict[str, Any]]]:
    """Copy the rows that the server takes; return how many, and the others with their reasons."""
    bad: list[dict[str, Any]] = []
    while rows.num_rows:
        try:
            copy(rows)
            break
        except RefusedRowsError as error:
            reasons = _not_json(rows) | _refused(rows, error)
            if not reasons:
                raise
            rows = _put_aside(rows, reasons, bad)
    return rows.num_rows, bad


def _sort(batch: Any) -> tuple[Any, list[dict[str, Any]]]:
    """Return the rows that can be jobs, as far as known here, and the others with reasons."""
    try:
        return pa.Table.from_batches([stage_batch(batch)]), []
    except ValidationError:
        good: list[Any] = []
        bad: list[dict[str, Any]] = []
        for row in range(batch.num_rows):
            one = batch.slice(row, 1)
            try:
                good.append(stage_batch(one))
            except ValidationError as error:
                bad.append(_describe(one, str(error)))
        return pa.Table.from_batches(good, stage_schema()), bad


def _describe(row: Any, reason: str) -> dict[str, Any]:
    given = dict(zip(row.schema.names, row.columns, strict=True))
    name = given["id"][0].as_py()
    return {"id": name, "payload": _text(given["payload"][0]), "reason": reason}


def _text(value: Any) -> str | None:
    try:
        read = value.as_py()
    except (ValueError, OverflowError):
        return str(value)[:KEPT]
    return None if read is None else str(read)[:KEPT]


def _refused(rows: Any, error: RefusedRowsError) -> dict[int, str]:
    """Return the row that the server refused."""
    place, names = find_refused_row(error), rows["id"]
    if place is None:
        return {}
    return {place[0] - 1: str(translated(error, lambda row: f"job {names[row - 1].as_py()!r}"))}


def _not_json(rows: Any) -> dict[int, str]:
    """Return the rows whose payloads Python cannot read as JSON; the server may refuse more."""
    found: dict[int, str] = {}
    for row, (name, text) in enumerate(zip(rows["id"].to_pylist(), rows["payload"].to_pylist(), strict=True)):
        try:
            json.loads(text)
        except (ValueError, RecursionError) as error:
            found[row] = f"the payload of job {name!r} is not JSON: {error}"
    return found


def _put_aside(rows: Any, reasons: dict[int, str], bad: list[dict[str, Any]]) -> Any:
    """Move some rows to `bad`, and return the others."""
    for row, reason in reasons.items():
        one = rows.slice(row, 1)
        bad.append({"id": one["id"][0].as_py(), "payload": one["payload"][0].as_py()[:KEPT], "reason": reason})
    return rows.filter(pa.array([row not in reasons for row in range(rows.num_rows)]))


def _aside(bad: list[dict[str, Any]]) -> Any:
    """Return rows for the stage that carry invalid rows, without NUL, which texts cannot have."""
    count = len(bad)
    told = [json.dumps(row).replace("\\u0000", "\\ufffd") for row in bad]
    columns = [
        pa.array([""] * count, pa.string()),
        pa.array(["null"] * count, pa.string()),
        pa.array([0] * count, pa.int16()),
        pa.nulls(count, pa.timestamp("us", "UTC")),
        pa.nulls(count, pa.string()),
        pa.array(told, pa.string()),
    ]
    return pa.table(columns, schema=stage_schema())
