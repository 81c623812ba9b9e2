"""Rows from PostgreSQL as Arrow batches, a batch at a time, in the schema that Spark expects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.job import STATES
from pgjq.spark.columns import TEXTS
from pgjq.spark.untyped import adbc, adbc_postgresql, pa, pc, spark_types
from pgjq.storage.postgres.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql.types import StructType

BATCH_BYTES: Final = 4 * 1024 * 1024
SESSION: Final = "streaming_session"


def read_batches(conninfo: str, statement: str, schema: StructType, names: str | None = None) -> Iterator[Any]:
    """Run a statement and yield its rows; no more of them are in memory than make a batch.

    Where `names` is given, the statement answers with the numbers of queues, workers and states in the place of their
    names, which that other statement lists.
    """
    target = arrow_schema(schema)
    try:
        with adbc.connect(conninfo, autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(Queries("pgjq").written(SESSION, {}))
            named = {} if names is None else _read_names(cursor, names)
            cursor.adbc_statement.set_options(
                **{adbc_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)}
            )
            cursor.execute(statement)
            for batch in cursor.fetch_record_batch():
                yield shape(batch, target, named)
    except adbc.OperationalError as error:
        raise StorageUnavailableError(str(error)) from error
    except adbc.Error as error:
        raise StorageError(str(error)) from error


def arrow_schema(schema: StructType) -> Any:
    """Return the Arrow schema that Spark wants for one of its own."""
    return spark_types.to_arrow_schema(schema, timezone="UTC")


def _read_names(cursor: Any, names: str) -> dict[str, Any]:
    """Make tables of numbers and names, of each column that has numbers in the place of names."""
    cursor.execute(names)
    listed: dict[str, dict[int, str]] = {"queue": {}, "worker": {}, "state": dict(enumerate(STATES))}
    for column, number, name in cursor.fetchall():
        listed[column][number] = name
    return {
        column: (pa.array(known, pa.int32()), pa.array(known.values(), pa.string())) for column, known in listed.items()
    }


def shape(batch: Any, target: Any, named: Mapping[str, Any]) -> Any:
    """Give a batch the columns and types that were asked for."""
    columns = [_column(field, column, named) for field, column in zip(target, batch.columns, strict=False)]
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * batch.num_rows, pa.struct([])))
    return pa.RecordBatch.from_arrays(columns, schema=target)


def _column(field: Any, column: Any, named: Mapping[str, Any]) -> Any:
    if field.name in named:
        numbers, names = named[field.name]
        return names.take(pc.index_in(column.cast(pa.int32()), numbers))
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
