"""A handler's writes and its job's completion, in one commit.

The handler writes through the connection that it is given. At the end of its block the job is settled on that same
connection, fenced by the lease as every settlement is: a lease that is gone settles nothing, LeaseLostError is
raised, and the writes are rolled back with it. So the effects in the database happen once, even when a stalled worker
wakes up late.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from pgjq.errors import JobCancelledError, LeaseLostError, PgjqError
from pgjq.storage.postgres import literals
from pgjq.storage.postgres.own_transaction import own_transaction

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pgjq.blocking import Colour
    from pgjq.storage.base import Lease
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.session import Session


class PostgresEffects:
    """An open transaction of a handler's."""

    def __init__(self, session: Session, lease: Lease) -> None:
        self.completed = False
        self._session = session
        self._lease = lease

    @property
    def connection(self) -> Any:
        """What the handler writes through: a psycopg connection, or the caller's own kind of session."""
        return self._session.connection

    async def complete(self, result: bytes | None) -> None:
        """Complete the job inside the transaction."""
        queue_id, seq = self._lease.key
        params = {
            "queue_ids": literals.numbers([queue_id]),
            "seqs": literals.numbers([seq]),
            "leases": literals.numbers([self._lease.number]),
            "states": None,
            "results": literals.blobs([result]),
            "errors": None,
            "delays": None,
        }
        ((_, _, states),) = await self._session.fetch("settle", params)
        if states is not None and not states:
            raise LeaseLostError(f"the lease of job {self._lease.id!r} is gone; nothing of this block is committed")
        if states:
            raise JobCancelledError(f"job {self._lease.id!r} was asked to end; nothing of this block is committed")
        self.completed = True

    def check_completed(self) -> None:
        """Refuse to commit writes without their completion."""
        if not self.completed:
            raise PgjqError("the block ended without completing its job; nothing of it is committed")


@asynccontextmanager
async def open_unit(
    colour: Colour, pool: Pool, queries: Queries, session_factory: Callable[[], Any] | None
) -> AsyncGenerator[Session]:
    """Open a transaction on a connection of the pool, or on a session of the caller's making."""
    if session_factory is None:
        async with pool.session() as session, session.transaction():
            yield session
    else:
        async with own_transaction(session_factory, colour, queries) as session:
            yield session
