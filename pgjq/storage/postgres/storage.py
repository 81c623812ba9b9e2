"""PostgreSQL: the storage that pgjq is made for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.errors import ValidationError
from pgjq.options import whole
from pgjq.storage.base import Operations, Promises
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.leader import Offices
from pgjq.storage.postgres.listen import Listener
from pgjq.storage.postgres.operations import PostgresOperations
from pgjq.storage.postgres.pool import Pools, ReservedPool
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.reserved import ReservedOperations
from pgjq.storage.postgres.server import Server

if TYPE_CHECKING:
    from pgjq.blocking import Colour


class PostgresStorage:
    """Jobs in tables of a PostgreSQL database, version 14 or newer.

    `conninfo` is a libpq connection string or URL, or SQLAlchemy's URL with a driver in it. Nothing is opened before
    the first operation. Share one storage among all clients, queues and threads of a process: it opens connections as
    they are needed, up to `max_size` for each colour that is used, and one more that listens once a caller waits.
    Connections that are idle for ten minutes are closed, down to `min_size`.
    """

    promises = Promises(
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
        whole("min_size", min_size, 0)
        whole("max_size", max_size, max(1, min_size))
        self.conninfo = conninfo
        self.schema = schema
        self._queries = queries = Queries(schema)
        self._pools = Pools(Server(conninfo, queries), min_size, max_size)
        self._listener = Listener(conninfo, queries)
        self._offices = Offices(conninfo, queries, self._pools.watchdog)
        self._blocking = PostgresOperations("blocking", self._pools.blocking, queries, self._listener, self._offices)
        self._async = PostgresOperations("async", self._pools.awaiting, queries, self._listener, self._offices)

    def operations(self, colour: Colour) -> Operations:
        """Return the operations in one colour."""
        return self._blocking if colour == "blocking" else self._async

    def reserved(self) -> Operations:
        """Return blocking operations with a connection of their own."""
        pool = ReservedPool(Pools(self._pools.server, 0, 1, self._pools.watchdog))
        return ReservedOperations("blocking", pool, self._queries, self._listener, self._offices)

    def close(self) -> None:
        """Close every connection, leave every office, end every wait. Closing twice is fine."""
        if not self._pools.closed:
            self._pools.close()
            self._offices.close()
            self._listener.close()
