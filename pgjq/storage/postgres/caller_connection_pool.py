"""Run every operation of a storage on one caller connection, in its open transaction.

A test that rolls its transaction back sees its own jobs and leaves none; a request of Django reads and changes jobs on
its own connection. Nothing here commits the caller's transaction: what is a transaction on a pooled connection is a
savepoint here. The connection belongs to one thread, and so do the operations meanwhile.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from pgjq.errors import ValidationError
from pgjq.storage.postgres.caller_connection import is_django, recognise
from pgjq.storage.postgres.session import AsyncSession, SyncSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from pgjq.storage.postgres.operations import PostgresOperations
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.session import Rows, Session


class SavepointSession:
    """A session on a connection of SQLAlchemy or asyncpg, whose transactions are savepoints."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.connection: Any = session.connection

    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        """See `Session`."""
        return await self._session.fetch(name, params)

    async def command(self, *texts: str) -> None:
        """See `Session`."""
        await self._session.command(*texts)

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Open a savepoint."""
        await self.command("savepoint pgjq_bound")
        try:
            yield
        except BaseException:
            await self.command("rollback to savepoint pgjq_bound")
            await self.command("release savepoint pgjq_bound")
            raise
        await self.command("release savepoint pgjq_bound")


class BoundPool:
    """A pool of one connection, which is the caller's."""

    def __init__(self, session: Session) -> None:
        opens_savepoints = isinstance(session, SyncSession | AsyncSession) or is_django(session.connection)
        self.lent: Session = session if opens_savepoints else SavepointSession(session)

    @asynccontextmanager
    async def session(self, *, for_handler: bool = False) -> AsyncGenerator[Session]:
        """Lend the connection."""
        del for_handler
        yield self.lent

    async def check(self) -> None:
        """Do nothing: the first statement shows whether the database can be used."""

    def drop(self) -> None:
        """Do nothing: the connection is the caller's."""

    async def close(self) -> None:
        """Do nothing: the connection is the caller's."""


class AsyncOnlyPool(BoundPool):
    """The pool of the sync mode while the storage is bound to an async connection."""

    @asynccontextmanager
    async def session(self, *, for_handler: bool = False) -> AsyncGenerator[Session]:
        """Raise ValidationError."""
        del for_handler
        raise ValidationError("this storage is bound to an async connection: only its async operations can run")
        yield self.lent


@contextmanager
def bound(
    sync_ops: PostgresOperations, async_ops: PostgresOperations, connection: Any, queries: Queries
) -> Generator[Session]:
    """Run both modes' operations on one connection until the block ends; return its session.

    A blocking connection serves both modes: async operations then block the loop, for as long as a statement takes.
    """
    session, mode = recognise(connection, queries)
    pool = BoundPool(session)
    with sync_ops.on_pool(AsyncOnlyPool(session) if mode == "async" else pool), async_ops.on_pool(pool):
        yield pool.lent
