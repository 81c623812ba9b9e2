"""The options of `.option(…)`, checked before anything is done.

A URL may contain a password. It appears nowhere: `Options` has no printable form, and no message repeats an option's
value.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import ValidationError
from pgjq.job import STATES
from pgjq.options import check_queue
from pgjq.spark.columns import View, check_view
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.queries import check_schema_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pgjq.spark.offsets import Offset

# The options of each use. An option that has no meaning for a use is refused, not ignored.
CONDITIONS: Final = ("state", "task", "finishedAfter", "finishedBefore", "createdAfter", "createdBefore")
EVENT_CONDITIONS: Final = ("state", "task", "eventAfter", "eventBefore")
OFFSETS: Final = ("startingOffset", "endingOffset")
READING: Final = ("url", "schema", "view", "queue", "columns", "numPartitions", *OFFSETS, *CONDITIONS)
STREAMING: Final = ("url", "schema", "view", "queue", "columns", "numPartitions", "maxRowsPerBatch", *CONDITIONS)
EVENTS: Final = (*STREAMING[: -len(CONDITIONS)], *EVENT_CONDITIONS)
EVENTS_BATCH: Final = (*READING[: -len(CONDITIONS)], *EVENT_CONDITIONS)
WRITING: Final = ("url", "schema", "queue", "writeId", "onBadRow")
STREAM_WRITING: Final = ("url", "schema", "queue", "queryId", "onBadRow")
NAMES: Final = tuple(dict.fromkeys((*READING, *STREAMING, *EVENTS, *WRITING, *STREAM_WRITING)))
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
    states: tuple[str, ...] | None = None
    task: str | None = None
    finished_after: datetime | None = None
    finished_before: datetime | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None
    event_after: datetime | None = None
    event_before: datetime | None = None
    starting_offset: Offset | None = None
    ending_offset: Offset | None = None
    max_rows: int | None = None
    write_id: str | None = None
    query_id: str | None = None
    on_bad_row: str = "fail"


def read_options(given: Mapping[str, Any], names: Sequence[str] = NAMES) -> Options:
    """Read Spark's options, whose names are case-insensitive; `names` lists the allowed ones."""
    told = {name.lower(): str(value) for name, value in given.items()}
    _check_names(told, names)
    queue = told.get("queue")
    columns = told.get("columns")
    return Options(
        conninfo=_conninfo(told.get("url")),
        schema=check_schema_name(told.get("schema", "pgjq")),
        view=check_view(told.get("view", "history")),
        queue=None if queue is None else check_queue(queue),
        columns=None if columns is None else _names(columns),
        partitions=_count(told, "numPartitions", MOST_TASKS),
        states=_states(told.get("state")),
        task=_name(told, "task"),
        finished_after=_time(told, "finishedAfter"),
        finished_before=_time(told, "finishedBefore"),
        created_after=_time(told, "createdAfter"),
        created_before=_time(told, "createdBefore"),
        event_after=_time(told, "eventAfter"),
        event_before=_time(told, "eventBefore"),
        starting_offset=_offset(told, "startingOffset"),
        ending_offset=_offset(told, "endingOffset"),
        max_rows=_count(told, "maxRowsPerBatch", MOST_ROWS),
        write_id=_name(told, "writeId"),
        query_id=_name(told, "queryId"),
        on_bad_row=_one_of(told, "onBadRow", ("fail", "quarantine")),
    )


def _check_names(given: Mapping[str, str], names: Sequence[str]) -> None:
    if "pushdown" in given:
        raise ValidationError(
            "there is no option pushdown, because Spark keeps pushed filters for later queries of the same frame, "
            f"which then miss rows; filter by the options {', '.join(CONDITIONS)}"
        )
    unknown = sorted(set(given) - {name.lower() for name in names} - _SPARKS)
    if unknown:
        raise ValidationError(f"unknown option {', '.join(unknown)}; the options here are {', '.join(names)}")


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


def _offset(told: Mapping[str, str], name: str) -> Offset | None:
    value = told.get(name.lower())
    if value is None:
        return None
    try:
        read = json.loads(value)
        int(read["xid"])
    except (ValueError, TypeError, KeyError):
        raise ValidationError(f"{name} must be an offset of a stream, as JSON") from None
    return read


def _one_of(told: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = told.get(name.lower(), known[0])
    if value not in known:
        raise ValidationError(f"{name} must be {' or '.join(known)}, not {value!r}")
    return value


def _states(told: str | None) -> tuple[str, ...] | None:
    if told is None:
        return None
    states = tuple(state.strip() for state in told.split(","))
    if unknown := [state for state in states if state not in STATES]:
        raise ValidationError(f"state must be one or more of {', '.join(STATES)}, not {unknown[0]!r}")
    return states


def _time(told: Mapping[str, str], name: str) -> datetime | None:
    value = told.get(name.lower())
    if value is None:
        return None
    try:
        read = datetime.fromisoformat(value)
    except ValueError:
        raise ValidationError(
            f"{name} must be a date such as 2026-08-01 or a point in time such as 2026-08-01T12:00+02:00, not {value!r}"
        ) from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


_LONGEST_NAME: Final = 512


def _name(told: Mapping[str, str], name: str) -> str | None:
    value = told.get(name.lower())
    if value is not None and (not 0 < len(value) <= _LONGEST_NAME or "\0" in value):
        raise ValidationError(f"{name} must have 1 to {_LONGEST_NAME} characters, none of them NUL")
    return value
