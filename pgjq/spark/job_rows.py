"""Convert rows of a data frame to rows of a stage, checked, a batch at a time.

`id` and `payload` are required. A text payload is JSON, which PostgreSQL checks; a struct, a map or a list is written
as JSON here, as `JsonSerde` would. The other columns may be missing, or null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructType,
    TimestampType,
)

from pgjq.errors import ValidationError
from pgjq.options import EARLIEST, ID_LENGTH, LATEST, SHORT_MAX
from pgjq.serde import JsonSerde, serialize_payload
from pgjq.spark.lazy_imports import pa, pc

if TYPE_CHECKING:
    from collections.abc import Iterator

# A row of PostgreSQL is at most 1 GB, and a payload is copied a few times on its way.
PAYLOAD_BYTES: Final = 256 * 1024 * 1024

_KINDS: Final[dict[str, tuple[type[DataType], ...]]] = {
    "id": (StringType,),
    "payload": (StringType, StructType, MapType, ArrayType),
    "priority": (ByteType, ShortType, IntegerType, LongType),
    "run_at": (TimestampType,),
    "singleton_key": (StringType,),
}
_SPOKEN: Final = {
    "id": "a string",
    "payload": "a struct, a map, an array or a string of JSON",
    "priority": "a whole number",
    "run_at": "a timestamp with a time zone",
    "singleton_key": "a string",
}


def check_frame(schema: StructType) -> None:
    """Refuse a data frame whose columns cannot make jobs."""
    for name in ("id", "payload"):
        if name not in schema.fieldNames():
            raise ValidationError(f"column {name!r} is missing: {_SPOKEN[name]}")
    for field in schema.fields:
        if field.name not in _KINDS:
            raise ValidationError(f"a job has no column {field.name!r}; its columns are {', '.join(_KINDS)}")
        if not isinstance(field.dataType, _KINDS[field.name]):
            given = field.dataType.simpleString()
            raise ValidationError(f"column {field.name!r} must be {_SPOKEN[field.name]}, not {given}")


def staged(batches: Iterator[Any], limit: int = PAYLOAD_BYTES) -> Iterator[Any]:
    """Convert batches of a data frame for a stage; a ValidationError names an invalid job."""
    return (stage_batch(batch, limit) for batch in batches)


def stage_batch(batch: Any, limit: int = PAYLOAD_BYTES) -> Any:
    """Convert a batch of a data frame for a stage; a ValidationError names an invalid job."""
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    ids = _ids(given["id"])
    columns = [
        ids,
        _payloads(given["payload"], ids, limit),
        _ranks(given.get("priority"), ids),
        _times(given.get("run_at"), ids),
        _keys(given.get("singleton_key"), ids),
        pa.nulls(len(ids), pa.string()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=stage_schema())


def stage_schema() -> Any:
    """Return a stage's columns as Arrow has them; `invalid` is null for rows that can be jobs."""
    return pa.schema(
        [
            ("id", pa.string()),
            ("payload", pa.string()),
            ("rank", pa.int16()),
            ("run_at", pa.timestamp("us", "UTC")),
            ("singleton_key", pa.string()),
            ("invalid", pa.string()),
        ]
    )


def _ids(column: Any) -> Any:
    column = _as_text(column)
    if column.null_count:
        raise ValidationError("column 'id' must not be null")
    _check_texts("a job's id", column)
    return column


def _keys(column: Any, ids: Any) -> Any:
    if column is None:
        return pa.nulls(len(ids), pa.string())
    column = _as_text(column)
    _check_texts("singleton_key", column)
    return column


def _check_texts(what: str, column: Any) -> None:
    ends = pc.min_max(pc.utf8_length(column)).as_py()
    if ends["min"] is not None and not 0 < ends["min"] <= ends["max"] <= ID_LENGTH:
        raise ValidationError(f"{what} must have 1 to {ID_LENGTH} characters; there is one with {ends['max']}")
    if pc.any(pc.match_substring(column, "\0")).as_py():
        raise ValidationError(f"{what} must not hold a NUL character")


def _payloads(column: Any, ids: Any, limit: int) -> Any:
    if column.null_count:
        first = column.is_null().index(True).as_py()
        raise ValidationError(f"the payload of job {ids[first].as_py()!r} is null; JSON's null is the text 'null'")
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        column = _as_text(column)
    else:
        column = pa.array(_written(column, ids), pa.string())
    sizes = pc.binary_length(column)
    longest = pc.max(sizes).as_py()
    if longest is not None and longest > limit:
        job = ids[sizes.index(longest).as_py()].as_py()
        raise ValidationError(f"the payload of job {job!r} has {longest} bytes; {limit} is the most")
    return column


def _written(column: Any, ids: Any) -> list[str]:
    """Return values as JSON."""
    serde = JsonSerde()
    return [
        serialize_payload(serde, _value(value, job), job).decode()
        for value, job in zip(column, ids.to_pylist(), strict=True)
    ]


def _value(value: Any, job: str) -> Any:
    """Convert a value to Python, which has no duplicate map keys and no year after 9999."""
    try:
        return value.as_py(maps_as_pydicts="strict")
    except (KeyError, ValueError, OverflowError) as error:
        raise ValidationError(f"the payload of job {job!r} cannot be written as JSON: {error}") from error


def _ranks(column: Any, ids: Any) -> Any:
    """Convert priorities, where higher comes first, to ranks, where lower comes first."""
    if column is None:
        return pa.array([0], pa.int16()).take(pa.nulls(len(ids), pa.int16()).fill_null(0))
    column = column.cast(pa.int64())
    ends = pc.min_max(column).as_py()
    if ends["min"] is not None and not -SHORT_MAX <= ends["min"] <= ends["max"] <= SHORT_MAX:
        worst = max(ends.values(), key=abs)
        raise ValidationError(f"priority must be between {-SHORT_MAX} and {SHORT_MAX}, not {worst}")
    return pc.negate(column.fill_null(0)).cast(pa.int16())


def _times(column: Any, ids: Any) -> Any:
    """Clip points in time to the range that every reader can represent, as an enqueue does."""
    kind = pa.timestamp("us", "UTC")
    if column is None:
        return pa.nulls(len(ids), kind)
    # As integers, because Arrow has no element-wise minimum of timestamps; null stays null.
    numbers = column.cast(kind).cast(pa.int64())
    for bound, choose in ((LATEST, pc.min_element_wise), (EARLIEST, pc.max_element_wise)):
        numbers = choose(numbers, pa.scalar(bound, kind).cast(pa.int64()), skip_nulls=False)
    return numbers.cast(kind)


def _as_text(column: Any) -> Any:
    return column.cast(pa.string())
