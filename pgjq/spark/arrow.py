"""Rows from PostgreSQL as Arrow batches, a batch at a time, in the schema that Spark expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.spark.columns import TEXTS
from pgjq.spark.driver import connect, read, run
from pgjq.spark.lazy_imports import adbc, pa, pc, spark_types
from pgjq.spark.packing import WORDS, take_apart
from pgjq.storage.postgres.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

SESSION: Final = "streaming_session"


def read_batches(conninfo: str, statement: str, schema: StructType, names: str | None = None) -> Iterator[Any]:
    """Run a statement and yield its rows; no more of them are in memory than make a batch.

    Where `names` is given, the statement answers with the numbers of queues, workers and states in the place of their
    names, which that other statement lists.
    """
    target = arrow_schema(schema)
    try:
        with connect(conninfo) as connection:
            read(connection, Queries("pgjq").written(SESSION, {}))
            named = {} if names is None else _read_names(connection, names)
            with run(connection, statement) as batches:
                for batch in batches:
                    yield shape(batch, target, named)
    except (adbc.OperationalError, OSError) as error:  # The second is Arrow's word for what goes wrong later on.
        raise StorageUnavailableError(str(error)) from error
    except adbc.Error as error:
        raise StorageError(str(error)) from error


def _read_names(connection: Any, names: str) -> dict[str, Any]:
    """Make tables of numbers and names, of each column that has numbers in the place of names."""
    rows = read(connection, names)
    return {column.as_py(): (numbers.values, known.values) for column, numbers, known in rows}


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark wants for one of its own."""
    return spark_types.to_arrow_schema(schema, timezone="UTC")


def shape(batch: Any, target: Any, named: Mapping[str, Any]) -> Any:
    """Give a batch the columns and types that were asked for."""
    if not len(target):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    for word in WORDS & given.keys():
        given |= take_apart(word, given.pop(word))
    return pa.RecordBatch.from_arrays([_column(field, given[field.name], named) for field in target], schema=target)


def _column(field: Any, column: Any, named: Mapping[str, Any]) -> Any:
    if field.name in named:
        numbers, names = named[field.name]
        return names.take(pc.index_in(column, numbers))
    return _text(column) if field.name in TEXTS else column.cast(field.type)


def _text(column: Any) -> Any:
    """Read bytes as text. What is no text, because a serde other than JSON wrote it, is written as SQL writes bytes."""
    try:
        return column.cast(pa.string())  # Which checks that all of it is UTF-8.
    except pa.ArrowInvalid:
        return pa.array([None if value is None else _written(value) for value in column.to_pylist()], pa.string())


def _written(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"\\x{value.hex()}"
