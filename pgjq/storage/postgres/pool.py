"""Connection pools of the storage, one for each mode, opened on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import psycopg

from pgjq.deadline import call_in_time
from pgjq.errors import StorageUnavailableError, storage_closed
from pgjq.storage.postgres import pool_waiting
from pgjq.storage.postgres.async_pool import AsyncPool
from pgjq.storage.postgres.pool_log import pool_name
from pgjq.storage.postgres.sync_pool import SyncPool
from pgjq.storage.postgres.watchdog import Watchdog

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager

    from pgjq.storage.postgres.server import Server
    from pgjq.storage.postgres.session import Session


class Pool(Protocol):
    """Source of connections for the operations of one mode."""

    def session(self, *, for_handler: bool = False) -> AbstractAsyncContextManager[Session]:
        """Borrow a connection; `for_handler` puts no limit on the time that a statement takes."""
        ...

    async def check(self) -> None:
        """Check once that the database can be reached and that its schema fits."""
        ...

    def drop(self) -> None:
        """Replace every connection: the server was demoted or is shutting down."""
        ...

    async def close(self) -> None:
        """Close this mode's connections."""
        ...


class Pools:
    """The pools of both modes for one database."""

    def __init__(self, server: Server, min_size: int, max_size: int, on_lost: Callable[[], None]) -> None:
        self.server = server
        self.watchdog = Watchdog(server.conninfo, lambda: server.is_pooled, on_lost)
        self.min_size = min_size
        self.max_size = max_size
        self.closed = False
        self.sync_pool = SyncPool(self)
        self.async_pool = AsyncPool(self)

    def check(self) -> None:
        """Check that the database can be used, unless a check has passed before."""
        self.refuse_if_closed()
        self.server.check()

    def options(self) -> dict[str, Any]:
        """Return the options of a new pool, of either mode."""
        return {
            "conninfo": self.server.conninfo,
            "kwargs": self.server.connection,
            "min_size": self.min_size,
            "max_size": self.max_size,
            "reconnect_timeout": pool_waiting.ASK_AGAIN,
            "name": pool_name(),
        }

    def explain_timeout(self) -> StorageUnavailableError:
        """Return why no connection came in time: the server is unreachable, or all are in use."""
        try:
            call_in_time(lambda: psycopg.connect(self.server.conninfo, **self.server.connection).close())
        except (psycopg.Error, TimeoutError) as error:
            return StorageUnavailableError(f"no connection for {pool_waiting.PATIENCE:g} s: {error}")
        return StorageUnavailableError(
            f"all {self.max_size} connections of this storage were in use for {pool_waiting.PATIENCE:g} s; "
            "raise max_size, or look for a transaction that stays open"
        )

    def refuse_if_closed(self) -> None:
        """Raise StorageError once the storage has been closed.

        A caller that opens a pool checks this under the pool's lock. `close` sets the flag before it takes that lock,
        so it sees every pool that was opened, however long the server took to answer before.
        """
        if self.closed:
            raise storage_closed()

    def drop(self) -> None:
        """Replace idle connections after one of this server was silent. Callable from any thread."""
        self.sync_pool.drop()
        self.async_pool.drop()

    def close(self) -> None:
        """Close both pools; may be called from any thread."""
        self.closed = True
        self.sync_pool.close_now()
        self.async_pool.close_soon()
