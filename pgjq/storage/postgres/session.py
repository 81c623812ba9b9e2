"""One connection, in either mode, independent of queues.

A `Session` runs a named query and returns its rows. This is the only module that waits for PostgreSQL: sync sessions
block and never suspend, async sessions await. All code above is written once for both modes.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from psycopg import AsyncCursor, Cursor
from psycopg.rows import tuple_row

from pgjq.storage.postgres.error_translation import translated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from contextlib import AbstractAsyncContextManager

    from psycopg import AsyncConnection, Connection

    from pgjq.storage.postgres.queries import Queries

Rows = list[tuple[Any, ...]]
NONE: frozenset[str] = frozenset()


class Session(Protocol):
    """A connection that runs named queries."""

    connection: Any

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """Run a query of `sql/queries` and return all its rows."""
        ...

    async def command(self, *texts: str) -> None:
        """Run commands without parameters or a snapshot, in one message if possible: `SET LOCAL …`."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction, or a savepoint inside the caller's."""
        ...


async def fetch_limited(session: Session, name: str, params: dict[str, Any], seconds: float) -> Rows:
    """Run a query that the server ends after some seconds."""
    async with limited(session, seconds):
        return await session.fetch(name, params)


@asynccontextmanager
async def limited(session: Session, seconds: float) -> AsyncGenerator[None]:
    """Open a transaction whose statements the server ends after some seconds each."""
    async with session.transaction():
        await session.command(f"set local statement_timeout = {max(1, round(seconds * 1000))}")
        yield


class SyncSession:
    """A psycopg `Connection`."""

    def __init__(self, connection: Connection[Any], queries: Queries, prepared: frozenset[str] = NONE) -> None:
        self.connection = self._connection = connection
        self._queries = queries
        self._prepared = prepared

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """Run a query, rarely prepared: a plan of an empty queue is wrong for a full one."""
        # Not the connection's cursor_factory: a caller's cursor class may format parameters in another way.
        with translated(), Cursor(self._connection, row_factory=tuple_row) as cursor:
            cursor.execute(self._queries.psycopg(name), params, prepare=name in self._prepared)
            return cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []

    async def command(self, *texts: str) -> None:
        """Run commands."""
        with translated(), Cursor(self._connection) as cursor:
            cursor.execute("; ".join(texts).encode())

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Open a transaction, or a savepoint inside the caller's."""
        block = self._connection.transaction()
        with translated():
            if not self._connection.autocommit:
                # psycopg's block commits a transaction that it began itself; so the caller's is begun before it.
                self._connection.execute("select")
            block.__enter__()
        try:
            yield
        except BaseException as error:
            with translated():
                block.__exit__(type(error), error, error.__traceback__)
            raise
        with translated():
            block.__exit__(None, None, None)


class AsyncSession:
    """A psycopg `AsyncConnection`."""

    def __init__(self, connection: AsyncConnection[Any], queries: Queries, prepared: frozenset[str] = NONE) -> None:
        self.connection = self._connection = connection
        self._queries = queries
        self._prepared = prepared

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """Run a query, rarely prepared: see `SyncSession.fetch`."""
        with translated():
            async with AsyncCursor(self._connection, row_factory=tuple_row) as cursor:
                await cursor.execute(self._queries.psycopg(name), params, prepare=name in self._prepared)
                return await cursor.fetchall() if cursor.pgresult is not None and cursor.pgresult.nfields else []

    async def command(self, *texts: str) -> None:
        """Run commands."""
        with translated():
            async with AsyncCursor(self._connection) as cursor:
                await cursor.execute("; ".join(texts).encode())

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Open a transaction, or a savepoint inside the caller's."""
        block = self._connection.transaction()
        with translated():
            if not self._connection.autocommit:
                await self._connection.execute("select")  # See `SyncSession.transaction`.
            await block.__aenter__()
        try:
            yield
        except BaseException as error:
            with translated():
                await block.__aexit__(type(error), error, error.__traceback__)
            raise
        with translated():
            await block.__aexit__(None, None, None)
