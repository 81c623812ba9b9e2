"""PostgreSQL storage."""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Any, Self

from pgjq.errors import ValidationError
from pgjq.options import check_int
from pgjq.storage.base import Capabilities, Operations
from pgjq.storage.postgres.background_connection import BackgroundConnection, DedicatedPool
from pgjq.storage.postgres.background_operations import DedicatedOperations
from pgjq.storage.postgres.caller_connection import wrap_caller_connection
from pgjq.storage.postgres.caller_connection_pool import BoundPool, bound
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.doctor_facts import PostgresExamination
from pgjq.storage.postgres.inspection import PostgresInspection
from pgjq.storage.postgres.leader import LeaderLocks
from pgjq.storage.postgres.listener import Listener
from pgjq.storage.postgres.metrics import PostgresMetrics
from pgjq.storage.postgres.operations import PostgresOperations
from pgjq.storage.postgres.pool import Pools
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.server import Server

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from pgjq.blocking import Mode
    from pgjq.storage.doctor_facts import Examination
    from pgjq.storage.inspection import Inspection
    from pgjq.storage.metrics import MetricsReader
    from pgjq.storage.postgres.session import Session


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
        self.caller_connection: Any = None
        self._queries = queries = Queries(schema)
        self._pools = Pools(Server(conninfo, queries), min_size, max_size, self._distrust)
        self._listener = Listener(conninfo, queries, self._pools.drop)
        # A candidate that must know at every moment whether it leads has a session without other statements: while one
        # is in flight, the end of the session looks like the statement's answer. Maintenance need not know.
        server, watchdog = self._pools.server, self._pools.watchdog
        self._background = BackgroundConnection(server, watchdog)
        self._background_locks = LeaderLocks(self._background)
        self._leader_locks = LeaderLocks(BackgroundConnection(server, watchdog, application_name="pgjq election"))
        self._sync = PostgresOperations("sync", self._pools.sync_pool, queries, self._listener, self._leader_locks)
        self._async = PostgresOperations("async", self._pools.async_pool, queries, self._listener, self._leader_locks)

    def _distrust(self) -> None:
        """Replace idle connections and probe the listener, after a connection was lost silently."""
        self._pools.drop()
        self._listener.doubt()

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

    def examination(self) -> Examination:
        """Return the reads of `pgjq doctor`, in async mode."""
        return PostgresExamination(self._pools.async_pool, self._pools.server)

    def metrics(self) -> MetricsReader:
        """Return the reads of an exporter of metrics, in sync mode."""
        return PostgresMetrics(self._pools.sync_pool)

    def bound(self, connection: Any) -> AbstractContextManager[Session]:
        """Run every operation on a caller connection, inside its transaction, until the block ends.

        Only for tests, through `pgjq.testing.use_connection`: the operations are then for one thread.
        """
        return bound(self._sync, self._async, connection, self._queries)

    def on_connection(self, connection: Any) -> Self:
        """Return this storage on a blocking caller connection, inside the caller's transaction.

        Use it in the connection's thread. It shares everything else with this storage; close that one.
        """
        pool = BoundPool(wrap_caller_connection(connection, "sync", self._queries))
        made = copy(self)
        made.caller_connection = connection
        made._sync = PostgresOperations(  # noqa: SLF001  (a copy of itself)
            "sync", pool, self._queries, self._listener, self._leader_locks
        )
        return made

    def close(self) -> None:
        """Close every connection, resign every leadership, end every wait. Closing twice is allowed."""
        if not self._pools.closed:
            self._pools.close()
            self._leader_locks.close()
            self._background_locks.close()
            self._listener.close()
