"""Copy rows to a stage under a savepoint, so that a refused row does not undo the others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg import sql

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.storage.postgres.oneshot import OneShotConnection

_COPY: Final = "copy {} (id, payload, rank, run_at, singleton_key, invalid) from stdin"


class RefusedRowsError(Exception):
    """The server refused a row, which its message names by number, or psycopg did."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.sqlstate = error.sqlstate


def copy_to_stage(here: OneShotConnection, schema: str, stage: str, rows: Iterable[tuple[Any, ...]]) -> None:
    """Copy rows to a stage, all or none, in the open transaction; RefusedRowsError if invalid."""
    connection, statement = here.session.connection, sql.SQL(_COPY).format(sql.Identifier(schema, stage))
    try:
        with connection.transaction(), connection.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)
    except (psycopg.DataError, psycopg.errors.StatementTooComplex) as error:
        raise RefusedRowsError(error) from error
