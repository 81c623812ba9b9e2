"""One connection, in either colour, and nothing about queues.

A `Session` runs a named query and returns its rows. This is the only place where the adapter waits for PostgreSQL: the
blocking sessions block and never suspend, the async ones await. Everything above is written once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from psycopg.rows import tuple_row

from pgjq.storage.postgres.failures import translated

if TYPE_CHECKING:
    from collections.abc import Iterable
    from contextlib import AbstractAsyncContextManager

    from psycopg import AsyncConnection, Connection

    from pgjq.storage.postgres.queries import Queries

Rows = list[tuple[Any, ...]]


class Session(Protocol):
    """A connection that runs named queries."""

    can_copy: bool

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """Run a query of `sql/queries` and return all its rows."""
        ...

    async def copy(self, name: str, pieces: Iterable[str]) -> None:
        """Run a `COPY … FROM STDIN` of `sql/queries`."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction, or a savepoint inside the caller's."""
        ...


class BlockingSession:
    """A psycopg `Connection`."""

    can_copy = True

    def __init__(self, connection: Connection[Any], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """Run a query; never prepared, because a plan made while a queue was empty is wrong when it is full."""
        with translated(), self._connection.cursor(row_factory=tuple_row) as cursor:
            cursor.execute(self._queries.psycopg(name), params or None, prepare=False)
            return cursor.fetchall() if cursor.description else []

    async def copy(self, name: str, pieces: Iterable[str]) -> None:
        """Copy rows in."""
        statement = self._queries.psycopg(name)
        with translated(), self._connection.cursor() as cursor, cursor.copy(statement) as copy:
            for piece in pieces:
                copy.write(piece)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction."""
        return _Entered(self._connection.transaction())


class AsyncSession:
    """A psycopg `AsyncConnection`."""

    can_copy = True

    def __init__(self, connection: AsyncConnection[Any], queries: Queries) -> None:
        self._connection = connection
        self._queries = queries

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """Run a query; never prepared, as above."""
        with translated():
            async with self._connection.cursor(row_factory=tuple_row) as cursor:
                await cursor.execute(self._queries.psycopg(name), params or None, prepare=False)
                return await cursor.fetchall() if cursor.description else []

    async def copy(self, name: str, pieces: Iterable[str]) -> None:
        """Copy rows in."""
        statement = self._queries.psycopg(name)
        with translated():
            async with self._connection.cursor() as cursor, cursor.copy(statement) as copy:
                for piece in pieces:
                    await copy.write(piece)

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction."""
        return self._connection.transaction()


class _Entered:
    """A blocking context manager in async clothes."""

    def __init__(self, manager: Any) -> None:
        self._manager = manager

    async def __aenter__(self) -> object:
        return self._manager.__enter__()

    async def __aexit__(self, *exc: object) -> Any:
        return self._manager.__exit__(*exc)
