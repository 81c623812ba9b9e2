"""Operations of the background threads.

The heartbeat thread settles runs that could not start. A row that another transaction has locked must not keep it from
renewing leases: this statement waits briefly for a lock and then fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pgjq.storage.postgres.operations import PostgresOperations

if TYPE_CHECKING:
    from pgjq.storage.postgres.session import Rows, Session

LOCK_TIMEOUT: Final = "set local lock_timeout = '100ms'"


class DedicatedOperations(PostgresOperations):
    """Sync operations that wait only briefly for a row lock."""

    async def _fetch(self, name: str, params: dict[str, Any] | None = None) -> Rows:
        if name != "settle":
            return await super()._fetch(name, params)
        return await self._repeated(lambda session: _fetch_soon(session, name, params or {}))


async def _fetch_soon(session: Session, name: str, params: dict[str, Any]) -> Rows:
    async with session.transaction():
        await session.command(LOCK_TIMEOUT)
        return await session.fetch(name, params)
