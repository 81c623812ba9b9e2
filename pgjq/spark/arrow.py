"""Rows from PostgreSQL as Arrow batches, a batch at a time, in the schema that Spark expects."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import StorageError, StorageUnavailableError
from pgjq.spark.columns import TEXTS
from pgjq.spark.untyped import adbc, adbc_postgresql, pa, pc, spark_types
from pgjq.spark.words import WORDS, take_apart
from pgjq.storage.postgres.queries import Queries

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator, Mapping

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
        with adbc.AdbcConnection(_open(conninfo)) as connection:
            _read(connection, Queries("pgjq").written(SESSION, {}))
            named = {} if names is None else _read_names(connection, names)
            with _run(connection, statement) as batches:
                for batch in batches:
                    yield shape(batch, target, named)
    except (adbc.OperationalError, OSError) as error:  # The second is Arrow's word for what goes wrong later on.
        raise StorageUnavailableError(str(error)) from error
    except adbc.Error as error:
        raise StorageError(str(error)) from error


@cache
def _open(conninfo: str) -> Any:
    """Return what connections are made of. It has asked the server for all its types, and need not for every task."""
    return adbc_postgresql.connect(conninfo)


@contextmanager
def _run(connection: Any, query: str) -> Generator[Any]:
    """Run a statement and lend its batches. ADBC's DB-API would do so, too, but imports pandas."""
    with adbc.AdbcStatement(connection) as statement:
        statement.set_options(**{adbc_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)})
        statement.set_sql_query(query)
        stream, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as batches:
            yield batches


def _read(connection: Any, query: str) -> list[Any]:
    """Run a statement and return its rows, which are few."""
    with _run(connection, query) as batches:
        return [row for batch in batches for row in zip(*batch.columns, strict=True)]


def _read_names(connection: Any, names: str) -> dict[str, Any]:
    """Make tables of numbers and names, of each column that has numbers in the place of names."""
    rows = _read(connection, names)
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
