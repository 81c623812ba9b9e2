"""The properties of a storage's server, and the settings of connections to it.

Before a pool opens, one plain connection checks the database: a wrong password or a missing schema is then an immediate
error for the caller, and not the time-out of a pool that keeps retrying.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq.deadline import NO_ANSWER, acquire_in_time, call_in_time
from pgjq.errors import StorageUnavailableError
from pgjq.storage.postgres.conninfo import parameters
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.schema_version import check_version
from pgjq.storage.postgres.watchdog import shut_down_socket

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.storage.postgres.queries import Queries

# Autocommit, because an operation is one statement. A vanished host is detected within half a minute.
CONNECTION: dict[str, Any] = {
    "autocommit": True,
    "application_name": "pgjq",
    "client_encoding": "UTF8",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 4,
    "tcp_user_timeout": 30_000,
}
# A reachable server answers within this time; a longer attempt would delay finding a server that is back. A
# connect_timeout in the connection string takes precedence.
CONNECT_SECONDS = 5
# For poolers, behind which sessions cannot be configured (sql/queries/configure_session.sql).
READ_COMMITTED = "-c default_transaction_isolation=read\\ committed"
# Statements that run once per job and plan no tables: they are prepared, except behind a pooler, which may send the
# next statement to another session.
PREPARED = frozenset({"enqueue_job", "job_state", "claim", "settle", "peek"})


class Server:
    """The server of one storage; all its pools share the result of the first check."""

    def __init__(self, conninfo: str, queries: Queries) -> None:
        self.conninfo = conninfo
        self.queries = queries
        self.connection: dict[str, Any] = CONNECTION | _connect_timeout(conninfo)
        self.is_pooled = False
        self.prepared: frozenset[str] = frozenset()
        self.checked = False
        self._checking = threading.Lock()

    def connect(self, *, application_name: str) -> psycopg.Connection[Any]:
        """Open a connection outside of a pool, and configure its session."""
        options: dict[str, Any] = {**self.connection, "application_name": application_name}
        connection = psycopg.connect(self.conninfo, **options)
        try:
            if not self.is_pooled:
                with answered_in_time(connection):
                    connection.execute(self.queries.psycopg("configure_session"), {}, prepare=False)
        except BaseException:
            connection.close()
            raise
        return connection

    def check(self) -> None:
        """Connect once and check that this code supports the schema.

        The threads of a worker start together: one of them checks, and the others wait for it. A connection attempt
        lasts as long as the connection string says, for each of its hosts; so the caller's deadline ends the wait.
        """
        if self.checked:
            return
        entered = acquire_in_time(self._checking, CONNECT_SECONDS)
        try:
            if not self.checked:
                call_in_time(self._check)
        except TimeoutError as error:
            raise StorageUnavailableError(NO_ANSWER) from error
        finally:
            if entered:
                self._checking.release()

    def _check(self) -> None:
        with (
            translated(),
            psycopg.connect(self.conninfo, **self.connection) as connection,
            answered_in_time(connection),
        ):
            row = connection.execute(self.queries.psycopg("schema_version"), {}, prepare=False).fetchone()
            version, answering, isolation = row or (0, 0, "")
            greeted_by = connection.info.backend_pid
        check_version(version)
        # A pooler invents a process number when it greets a client.
        self.is_pooled = answering != greeted_by
        self.prepared = frozenset() if self.is_pooled else PREPARED
        if self.is_pooled:
            self.connection |= {"prepare_threshold": None}  # Else psycopg prepares a statement at its fifth use.
        if self.is_pooled and isolation != "read committed":
            own = parameters(self.conninfo).get("options") or ""
            self.connection |= {"options": f"{own} {READ_COMMITTED}"}
        self.checked = True


@contextmanager
def answered_in_time(connection: Any) -> Generator[None]:
    """Bound a connection's first statement like the attempt; the watchdog comes later."""
    timer = threading.Timer(CONNECT_SECONDS, shut_down_socket, [connection])
    timer.name, timer.daemon = "pgjq connect timer", True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _connect_timeout(conninfo: str) -> dict[str, Any]:
    known = "connect_timeout" in parameters(conninfo) or "PGCONNECT_TIMEOUT" in os.environ
    return {} if known else {"connect_timeout": CONNECT_SECONDS}
