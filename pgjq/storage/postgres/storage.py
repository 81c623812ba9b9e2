"""PostgreSQL storage."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.errors import ValidationError
from pgjq.options import check_int
from pgjq.storage.base import Capabilities, Operations
from pgjq.storage.postgres.background_connection import BackgroundConnection, DedicatedPool
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.dedicated import DedicatedOperations
from pgjq.storage.postgres.inspection import PostgresInspection
from pgjq.storage.postgres.leader import LeaderLocks
from pgjq.storage.postgres.listener import Listener
from pgjq.storage.postgres.operations import PostgresOperations
from pgjq.storage.postgres.pool import Pools
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.server import Server

if TYPE_CHECKING:
    from pgjq.blocking import Mode
    from pgjq.storage.inspection import Inspection


class PostgresStorage:
    """Store jobs in tables of a PostgreSQL database, version 14 or newer.

    `conninfo` is a libpq connection string or URL, or a SQLAlchemy URL with a driver in it. The first operation
    connects. Share one storage among all clients, queues and threads of a process: it opens connections as needed, up
    to `max_size` for each mode in use, one listener connection once a caller waits, and one background connection for
    all its workers. It closes connections that are idle for ten minutes, down to `min_size`.
    """

    capabilities = Capabilities(
        durable=True,
        processes=True,
        machines=True,
        transactions=True,
        leader_election=True,
        definitions=True,
        notice="at once; behind a transaction pooler, every `block_timeout` seconds",
        clock="the database's",
        url="`postgresql://…`, `embedded:`, `embedded:///directory`",
    )

    def __init__(self, conninfo: str, *, schema: str = "pgjq", min_size: int = 0, max_size: int = 10) -> None:
        if not isinstance(conninfo, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValidationError("conninfo must be a libpq connection string or URL")
        conninfo = libpq_conninfo(conninfo)
        check_int("min_size", min_size, 0)
        check_int("max_size", max_size, max(1, min_size))
        self.conninfo = conninfo
        self.schema = schema
        self._queries = queries = Queries(schema)
        self._pools = Pools(Server(conninfo, queries), min_size, max_size)
        self._listener = Listener(conninfo, queries)
        # A candidate that must know at every moment whether it leads has a session without other statements: while one
        # is in flight, a session that the server ends cannot be told from its answer. Maintenance need not know.
        server, watchdog = self._pools.server, self._pools.watchdog
        self._background = BackgroundConnection(server, watchdog)
        self._background_locks = LeaderLocks(self._background)
        self._leader_locks = LeaderLocks(BackgroundConnection(server, watchdog, application_name="pgjq election"))
        self._sync = PostgresOperations("sync", self._pools.sync_pool, queries, self._listener, self._leader_locks)
        self._async = PostgresOperations("async", self._pools.async_pool, queries, self._listener, self._leader_locks)

    def operations(self, mode: Mode) -> Operations:
        """Return the operations in one mode."""
        return self._sync if mode == "sync" else self._async

    def dedicated(self) -> Operations:
        """Return sync operations on the background connection."""
        pool = DedicatedPool(self._background)
        return DedicatedOperations("sync", pool, self._queries, self._listener, self._background_locks)

    def inspection(self) -> Inspection:
        """Return the reads of the web page, in async mode."""
        return PostgresInspection(self._pools.async_pool)

    def close(self) -> None:
        """Close every connection, resign every leadership, end every wait. Closing twice is allowed."""
        if not self._pools.closed:
            self._pools.close()
            self._leader_locks.close()
            self._background_locks.close()
            self._listener.close()
