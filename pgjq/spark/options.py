"""The options of `.option(…)`, checked before anything is done.

A URL may contain a password. It appears nowhere: `Options` has no printable form, and no message repeats an option's
value.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError
from pgjq.options import check_queue
from pgjq.spark.columns import View, check_view
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.queries import check_schema_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# The options of each use. An option that has no meaning for a use is refused, not ignored.
READING: Final = ("url", "schema", "view", "queue", "columns", "numPartitions", "pushdown")
STREAMING: Final = ("url", "schema", "view", "queue", "columns", "numPartitions", "maxRowsPerBatch")
WRITING: Final = ("url", "schema", "queue", "writeId")
STREAM_WRITING: Final = ("url", "schema", "queue", "queryId")
NAMES: Final = tuple(dict.fromkeys((*READING, *STREAMING, *WRITING, *STREAM_WRITING)))
MOST_TASKS: Final = 10_000
MOST_ROWS: Final = 10**12
# Spark passes these as well; they are its own.
_SPARKS: Final = frozenset({"checkpointlocation", "__datasource_name__", "queryname"})


@dataclass(frozen=True, slots=True)
class Options:
    """The options of one read or write."""

    conninfo: str = field(repr=False)
    schema: str = "pgjq"
    view: View = "history"
    queue: str | None = None
    columns: tuple[str, ...] | None = None
    partitions: int | None = None
    pushdown: bool = False
    max_rows: int | None = None
    write_id: str | None = None
    query_id: str | None = None


def read_options(given: Mapping[str, Any], names: Sequence[str] = NAMES) -> Options:
    """Read Spark's options, whose names are case-insensitive; `names` lists the allowed ones."""
    told = {name.lower(): str(value) for name, value in given.items()}
    unknown = sorted(set(told) - {name.lower() for name in names} - _SPARKS)
    if unknown:
        raise ValidationError(f"unknown option {', '.join(unknown)}; the options here are {', '.join(names)}")
    queue = told.get("queue")
    columns = told.get("columns")
    return Options(
        conninfo=_conninfo(told.get("url")),
        schema=check_schema_name(told.get("schema", "pgjq")),
        view=check_view(told.get("view", "history")),
        queue=None if queue is None else check_queue(queue),
        columns=None if columns is None else _names(columns),
        partitions=_count(told, "numPartitions", MOST_TASKS),
        pushdown=_truth(told, "pushdown"),
        max_rows=_count(told, "maxRowsPerBatch", MOST_ROWS),
        write_id=_name(told, "writeId"),
        query_id=_name(told, "queryId"),
    )


def _conninfo(url: str | None) -> str:
    """Return the connection string for libpq, with which Spark's tasks connect."""
    url = url or os.environ.get("PGJQ_URL")
    if not url:
        raise ValidationError('option url is missing: .option("url", "postgresql://host/database"), or set PGJQ_URL')
    if url.startswith(("embedded:", "redis:", "rediss:", "file:", "memory:")):
        kind = url.partition(":")[0]
        raise ValidationError(
            f"Spark reads and writes PostgreSQL, not {kind}: storages; of an embedded server, pass storage.conninfo"
        )
    try:
        return libpq_conninfo(url)
    except ValidationError as error:
        raise ValidationError(f"option url is not for PostgreSQL: {error}") from None


def _names(columns: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    if not names or len(set(names)) != len(names):
        raise ValidationError(f"columns must be names separated by commas, each once, not {columns!r}")
    return names


def _count(told: Mapping[str, str], name: str, most: int) -> int | None:
    value = told.get(name.lower())
    if value is None:
        return None
    # Length first: Python refuses to parse a number with thousands of digits.
    if not value.isdecimal() or len(value) > len(str(most)) or not 1 <= int(value) <= most:
        raise ValidationError(f"{name} must be a whole number from 1 to {most}, not {value[:20]!r}")
    return int(value)


def _truth(told: Mapping[str, str], name: str) -> bool:
    value = told.get(name.lower(), "false").lower()
    if value not in ("true", "false"):
        raise ValidationError(f"{name} must be true or false, not {value!r}")
    return value == "true"


_LONGEST_NAME: Final = 512


def _name(told: Mapping[str, str], name: str) -> str | None:
    value = told.get(name.lower())
    if value is not None and (not 0 < len(value) <= _LONGEST_NAME or "\0" in value):
        raise ValidationError(f"{name} must have 1 to {_LONGEST_NAME} characters, none of them NUL")
    return value
