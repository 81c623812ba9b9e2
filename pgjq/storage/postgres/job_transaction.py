"""Commit a handler's writes together with the completion of its job.

The handler writes through the connection that it is given. At the end of its block the job is settled on the same
connection, fenced by the lease like every settlement: if the lease is lost, nothing is settled, LeaseLostError is
raised, and the writes are rolled back. So the effects in the database happen once, even if a stalled worker resumes
late.
"""

from __future__ import annotations

import re
from contextlib import asynccontextmanager
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from pgjq.errors import JobCancelledError, LeaseLostError, PgjqError
from pgjq.storage.postgres import array_literals
from pgjq.storage.postgres.caller_transaction import caller_transaction
from pgjq.storage.postgres.idle_limit import IdleLimit

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pgjq.blocking import Mode
    from pgjq.storage.base import Claimed, Lease
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.session import Session


# The pause between completing a job and COMMIT is limited to the lease, within these bounds.
SHORTEST_PAUSE = 5.0
LONGEST_PAUSE = 60.0
UNQUOTED = re.compile(r"[^A-Za-z0-9_./-]")


class PostgresJobTransaction:
    """An open transaction of a handler."""

    def __init__(self, session: Session, claimed: Claimed, idle_limit: float | None) -> None:
        self.completed = False
        self._session = session
        self.idle_limit = IdleLimit(session, idle_limit)
        self._lease = claimed.lease
        self._pause = min(max(claimed.lease_seconds or LONGEST_PAUSE, SHORTEST_PAUSE), LONGEST_PAUSE)

    @property
    def connection(self) -> Any:
        """The connection for the handler's writes: psycopg's, or the session that the factory made."""
        return self._session.connection

    async def restart_idle_limit(self) -> None:
        """Count the idle time from now on: the lease has been renewed."""
        await self.idle_limit.restart()

    async def complete(self, result: bytes | None) -> None:
        """Complete the job inside the transaction."""
        queue_id, seq = self._lease.key
        params = {
            "queue_ids": array_literals.numbers([queue_id]),
            "seqs": array_literals.numbers([seq]),
            "leases": array_literals.numbers([self._lease.number]),
            "results": array_literals.blobs([result]),
            "limit": str(round(self._pause * 1000)),
        }
        ((states, _),) = await self._session.fetch("complete", params)
        if states is not None and not states:
            raise LeaseLostError(lost(self._lease))
        if states:
            raise JobCancelledError(f"job {self._lease.id!r} was cancelled; its transaction is rolled back")
        self.completed = True

    def check_completed(self) -> None:
        """Raise if the block would commit its writes without completing the job."""
        if not self.completed:
            raise PgjqError("the transaction() block ended without completing its job; it is rolled back")


def lost(lease: Lease) -> str:
    """Return the message of a lost lease."""
    return f"the lease of job {lease.id!r} is lost; its transaction is rolled back"


def transaction_name(schema: str, queue: str, job_id: str, attempts: int) -> str:
    """Return an application name for the session: readable, unique per run, without quotes."""
    run = f"{schema}\0{queue}\0{job_id}\0{attempts}"
    readable = UNQUOTED.sub("?", f"{queue}/{job_id}"[:40])
    return f"pgjq {readable} {blake2b(run.encode(), digest_size=8).hexdigest()}"


@asynccontextmanager
async def open_unit(
    mode: Mode, pool: Pool, queries: Queries, session_factory: Callable[[], Any] | None
) -> AsyncGenerator[Session]:
    """Open a transaction on a pooled connection, or on a session of the caller's factory."""
    if session_factory is None:
        async with pool.session(for_handler=True) as session, session.transaction():
            yield session
    else:
        async with caller_transaction(session_factory, mode, queries) as session:
            yield session
