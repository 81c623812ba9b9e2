"""ADBC without its DB-API, which imports pandas and reads all types with every connection."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from pgjq.spark.lazy_imports import adbc, adbc_postgresql, pa

if TYPE_CHECKING:
    from collections.abc import Generator

BATCH_BYTES: Final = 4 * 1024 * 1024


@contextmanager
def connect(conninfo: str) -> Generator[Any]:
    """Open a connection; by default every statement commits."""
    with adbc.AdbcConnection(_open(conninfo)) as connection:
        yield connection


@cache
def _open(conninfo: str) -> Any:
    """Return the database object. It has read all of the server's types, once for all tasks."""
    return adbc_postgresql.connect(conninfo)


@contextmanager
def run(connection: Any, query: str) -> Generator[Any]:
    """Run a statement and yield its batches."""
    with adbc.AdbcStatement(connection) as statement:
        statement.set_options(**{adbc_postgresql.StatementOptions.BATCH_SIZE_HINT_BYTES.value: str(BATCH_BYTES)})
        statement.set_sql_query(query)
        stream, _ = statement.execute_query()
        with pa.RecordBatchReader.from_stream(stream) as batches:
            yield batches


def read(connection: Any, query: str) -> list[Any]:
    """Run a statement and return its rows; for few rows."""
    with run(connection, query) as batches:
        return [row for batch in batches for row in zip(*batch.columns, strict=True)]


def append(connection: Any, schema: str, table: str, batches: Any) -> None:
    """Copy batches into a table."""
    with adbc.AdbcStatement(connection) as statement:
        words = adbc.StatementOptions
        statement.set_options(
            **{
                words.INGEST_TARGET_TABLE.value: table,
                words.INGEST_TARGET_DB_SCHEMA.value: schema,
                words.INGEST_MODE.value: "adbc.ingest.mode.append",
            }
        )
        statement.bind_stream(batches)
        statement.execute_update()
