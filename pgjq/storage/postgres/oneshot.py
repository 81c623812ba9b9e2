"""One-shot connections: opened for one purpose and closed, without a pool or a thread."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq.blocking import Blocking, drive
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.schema_version import check_version
from pgjq.storage.postgres.server import CONNECTION
from pgjq.storage.postgres.session import SyncSession

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from pgjq.storage.postgres.session import Rows


class OneShotConnection:
    """Queries and transactions on a one-shot connection."""

    def __init__(self, session: SyncSession, queries: Queries) -> None:
        self.session = session
        self.queries = queries

    def fetch(self, name: str, params: dict[str, Any] | None = None) -> Rows:
        """Run a query of `sql/queries`."""
        return drive(self.session.fetch(name, params or {}))

    def transaction(self) -> AbstractContextManager[None]:
        """Run the block as one transaction."""
        return Blocking(self.session.transaction())

    def cancel(self) -> None:
        """Cancel the query that another thread runs, if there is one."""
        self.session.connection.cancel_safe()


@contextmanager
def oneshot_connection(conninfo: str, schema: str = "pgjq") -> Generator[OneShotConnection]:
    """Connect, check that this code supports the schema, and close at the end of the block."""
    queries = Queries(schema)
    with translated(), psycopg.connect(libpq_conninfo(conninfo), **CONNECTION) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # Regardless of the database's default.
        session = SyncSession(connection, queries)
        check_version(drive(session.fetch("schema_version", {}))[0][0])
        yield OneShotConnection(session, queries)
