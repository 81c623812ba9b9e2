"""Read rows from PostgreSQL as Arrow batches, in the schema that Spark expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.spark.adbc import connect, read, run
from pgjq.spark.columns import NUMBERED, TEXTS
from pgjq.spark.lazy_imports import adbc, pa, pc, spark_types
from pgjq.storage.postgres.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

SESSION: Final = "configure_streaming_session"


def read_batches(conninfo: str, statement: str, schema: StructType, names: str | None = None) -> Iterator[Any]:
    """Run a statement and yield its rows; at most one batch of them is in memory.

    With `names`, the statement returns the numbers of `NUMBERED`, and the statement `names` lists their names.
    """
    target = arrow_schema(schema)
    try:
        with connect(conninfo) as connection:
            read(connection, Queries("pgjq").written(SESSION, {}))
            named = {} if names is None else _read_names(connection, names)
            with run(connection, statement) as batches:
                for batch in batches:
                    yield shape(batch, target, named)
    except (adbc.OperationalError, OSError) as error:  # Arrow raises the second for later failures.
        raise StorageUnavailableError(str(error)) from error
    except adbc.Error as error:
        raise StorageError(str(error)) from error


def _read_names(connection: Any, names: str) -> dict[str, Any]:
    """Return the numbers and names of each column of `NUMBERED`."""
    rows = read(connection, names)
    return {column.as_py(): (numbers.values, known.values) for column, numbers, known in rows}


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark expects for one of its schemas."""
    return spark_types.to_arrow_schema(schema, timezone="UTC")


def shape(batch: Any, target: Any, named: Mapping[str, Any]) -> Any:
    """Convert a batch to the requested columns and types."""
    if not len(target):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    return pa.RecordBatch.from_arrays([_column(field, given, named) for field in target], schema=target)


def _column(field: Any, given: Mapping[str, Any], named: Mapping[str, Any]) -> Any:
    if field.name in named:
        numbers, names = named[field.name]
        return names.take(pc.index_in(given[NUMBERED[field.name]], numbers))
    column = given[field.name]
    return _text(column) if field.name in TEXTS else column.cast(field.type)


def _text(column: Any) -> Any:
    """Read bytes as text; bytes of serdes other than JSON become SQL's notation for bytes."""
    try:
        return column.cast(pa.string())  # This checks that all of it is UTF-8.
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _written(value) for value in column.to_pylist()], pa.string())


def _written(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"
