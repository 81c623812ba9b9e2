"""The columns of each view, and checks of the columns that a query asks for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, cast, get_args

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Sequence

View = Literal["history", "jobs", "queues", "events"]

_JOBS: Final[dict[str, DataType]] = {
    "queue": StringType(),
    "id": StringType(),
    "state": StringType(),
    "priority": IntegerType(),
    "attempts": IntegerType(),
    "max_attempts": IntegerType(),
    "stalled": IntegerType(),
    "worker": StringType(),
    "created_at": TimestampType(),
    "started_at": TimestampType(),
    "finished_at": TimestampType(),
    "payload": StringType(),
    "result": StringType(),
    "error": StringType(),
}
# Only by name: the order of enqueueing, which distinguishes endings of the same id, the workers that the job stalled
# on, the task that the payload names, and its runs that did not complete, as JSON.
_ON_REQUEST: Final[dict[str, DataType]] = {
    "seq": LongType(),
    "stalled_on": ArrayType(StringType()),
    "task": StringType(),
    "runs": StringType(),
}

_QUEUES: Final[dict[str, DataType]] = {
    "queue": StringType(),
    "policy": StringType(),
    "partition": BooleanType(),
    "paused": BooleanType(),
    "created_at": TimestampType(),
    "dead_letter": StringType(),
    "warning_queue_size": IntegerType(),
    "retry_limit": IntegerType(),
    "retry_delay": DoubleType(),
    "retry_backoff": BooleanType(),
    "retry_delay_max": DoubleType(),
    "heartbeat_seconds": DoubleType(),
    "expire_in_seconds": DoubleType(),
    "retention_seconds": DoubleType(),
    "delete_after_seconds": DoubleType(),
    "queued": LongType(),
    "deferred": LongType(),
    "ready": LongType(),
    "processing": LongType(),
    "failing": LongType(),
    "completed": LongType(),
    "failed": LongType(),
    "cancelled": LongType(),
    "total": LongType(),
    "oldest_ready_age": DoubleType(),
}
_EVENTS: Final[dict[str, DataType]] = {
    "queue": StringType(),
    "id": StringType(),
    "task": StringType(),
    "event": StringType(),
    "state": StringType(),
    "attempts": IntegerType(),
    "run": IntegerType(),
    "worker": StringType(),
    "at": TimestampType(),
    "outcome": StringType(),
    "error": StringType(),
    "seq": LongType(),
    "n": LongType(),
}
# Bytes in the database, text in Spark.
TEXTS: Final = frozenset({"payload", "result"})
# Names that history has as numbers: a reader looks them up in a list, which is faster than a join for each row.
NUMBERED: Final = {"queue": "queue_number", "state": "state_number", "worker": "worker_number"}


def check_view(name: str) -> View:
    """Return the view if it exists."""
    if name not in get_args(View):
        raise ValidationError(f"view must be one of {', '.join(get_args(View))}, not {name!r}")
    return cast("View", name)


def schema_of(view: View, columns: Sequence[str] | None = None) -> StructType:
    """Return the schema of a view, or of some of its columns in the given order."""
    known = _known(view)
    names = [*(_JOBS if view in ("history", "jobs") else known)] if columns is None else columns
    for name in names:
        if name not in known:
            raise ValidationError(f"the view {view} has no column {name!r}; its columns are {', '.join(known)}")
    return StructType([StructField(name, known[name]) for name in names])


def check_schema(view: View, schema: StructType) -> StructType:
    """Return a reader's own schema, if its columns and types are the view's."""
    ours = schema_of(view, schema.fieldNames())
    for field, known in zip(schema.fields, ours.fields, strict=True):
        if field.dataType != known.dataType:
            wanted, given = known.dataType.simpleString(), field.dataType.simpleString()
            raise ValidationError(f"column {field.name!r} of the view {view} is {wanted}, not {given}")
    return schema


def _known(view: View) -> dict[str, DataType]:
    return {"queues": _QUEUES, "events": _EVENTS}.get(view, _JOBS | _ON_REQUEST)
