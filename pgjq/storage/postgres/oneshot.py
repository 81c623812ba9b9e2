"""One connection for a short errand: no pool, no thread, and gone when the errand is done."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq.blocking import Blocking, drive
from pgjq.storage.postgres.conninfo import libpq_conninfo
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.queries import Queries
from pgjq.storage.postgres.server import CONNECTION, check_version
from pgjq.storage.postgres.session import SyncSession

if TYPE_CHECKING:
    from collections.abc import Generator
    from contextlib import AbstractContextManager

    from pgjq.storage.postgres.session import Rows


class OneShotConnection:
    """What one can do on such a connection."""

    def __init__(self, session: SyncSession, queries: Queries) -> None:
        self.session = session
        self.queries = queries

    def fetch(self, name: str, params: dict[str, Any] | None = None) -> Rows:
        """Run a query of `sql/queries`."""
        return drive(self.session.fetch(name, params or {}))

    def transaction(self) -> AbstractContextManager[None]:
        """Have everything inside the block happen, or nothing of it."""
        return Blocking(self.session.transaction())

    def cancel(self) -> None:
        """Stop the query that another thread is waiting for, if there is one."""
        self.session.connection.cancel_safe()


@contextmanager
def oneshot_connection(conninfo: str, schema: str = "pgjq") -> Generator[OneShotConnection]:
    """Connect, see that the schema is one that this code can use, and close in the end."""
    queries = Queries(schema)
    with translated(), psycopg.connect(libpq_conninfo(conninfo), **CONNECTION) as connection:
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED  # Whatever the database's usual one is.
        session = SyncSession(connection, queries)
        check_version(drive(session.fetch("schema_version", {}))[0][0])
        yield OneShotConnection(session, queries)
