"""One connection for background work: heartbeats, reaping, elections, maintenance.

Rules
* The background threads of all workers in a process share it, one statement at a time. It opens at the first use, opens
  again after a loss, and closes when its last user leaves.
* A thread that cannot have it for `BUSY_SECONDS`, because a long statement runs on it, uses an extra connection for
  this one time: no lease expires behind a slow prune.
* Handlers and callers never use it, so that a handler that holds every connection of the pool keeps its lease.
* The leader locks of this process belong to its session (`leader.py`).
"""

from __future__ import annotations

import contextlib
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from pgjq.deadline import call_in_time, current_deadline
from pgjq.errors import StorageUnavailableError, storage_closed
from pgjq.fork import ForkCheck
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.pool_waiting import (
    LATE,
    PATIENCE,
    close_seconds,
    has_unread_bytes,
    refuse_if_late,
    retry_interval,
    wait_deadline,
)
from pgjq.storage.postgres.session import SyncSession
from pgjq.storage.postgres.watchdog import shut_down_socket

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from pgjq.storage.postgres.server import Server
    from pgjq.storage.postgres.session import Session
    from pgjq.storage.postgres.watchdog import Watchdog

BUSY_SECONDS: Final = 0.2

Connection = psycopg.Connection[Any]


class BackgroundConnection:
    """The connection, who uses it, and the lock of the thread that uses it now."""

    def __init__(self, server: Server, watchdog: Watchdog, application_name: str = "pgjq background") -> None:
        self.server = server
        self._application_name = application_name
        self._watchdog = watchdog
        self._inherited: list[object] = []
        self._closed = False
        self._begin()

    def _begin(self) -> None:
        self._fork = ForkCheck()
        self._in_use = threading.Lock()
        self._users: set[object] = set()
        self._changing_users = threading.Lock()
        self._outdated = False
        self._doubted: Connection | None = None
        self.connection: Connection | None = None

    def add_user(self, user: object) -> None:
        """Keep the connection open until this user leaves."""
        if self._fork.happened:
            self._inherited.append(self.connection)  # It belongs to the parent; closing it here would break it.
            self._begin()
        with self._changing_users:
            self._users.add(user)

    def remove_user(self, user: object) -> None:
        """Close the connection if no other user needs it."""
        with self._changing_users:
            self._users.discard(user)
            if self._users or self._fork.happened:
                return
        self._close_soon()

    def close(self) -> None:
        """Close the connection for good."""
        self._closed = True
        if not self._fork.happened:
            self._close_soon()

    def is_open(self) -> bool:
        """Return whether the server has not ended the session, as far as its socket shows.

        While a statement runs, arriving bytes are its answer. A doubt lasts until the next use.
        """
        connection = self.connection
        if connection is None or connection is self._doubted:
            return False
        if not self._in_use.locked() and not self._is_usable(connection):
            self._doubted = connection
            return False
        return True

    def replace(self) -> None:
        """Open a new connection for the next use: the server was demoted or is shutting down."""
        self._outdated = True

    def interrupt(self) -> None:
        """End the statement in progress."""
        if (connection := self.connection) is not None:
            shut_down_socket(connection)

    @contextmanager
    def session_connection(self) -> Generator[Connection]:
        """Borrow the connection, or an extra one if another thread keeps it."""
        with self.borrow(BUSY_SECONDS) as connection:
            if connection is not None:
                yield connection
                return
        with self._extra() as connection:
            yield connection

    @contextmanager
    def borrow(self, patience: float) -> Generator[Connection | None]:
        """Borrow the connection; None if another thread keeps it for so long."""
        if not self._in_use.acquire(timeout=min(patience, current_deadline().left)):
            yield None
            return
        try:
            connection = self._connected()
            with self._watched(connection):
                yield connection
        finally:
            self._reset()
            self._in_use.release()

    @contextmanager
    def _extra(self) -> Generator[Connection]:
        connection = self._connect()
        try:
            with self._watched(connection):
                yield connection
        finally:
            self._disconnect(connection)

    @contextmanager
    def _watched(self, connection: Connection) -> Generator[None]:
        lent = self._watchdog.watch(connection)
        try:
            yield
        finally:
            self._watchdog.unwatch(lent)

    def _connected(self) -> Connection:
        if self.connection is not None and (self._outdated or not self._is_usable(self.connection)):
            self._drop()
        if self.connection is None:
            self._outdated = False
            self.connection = self._connect()
        return self.connection

    @staticmethod
    def _is_usable(connection: Connection) -> bool:
        try:
            return not has_unread_bytes(connection.fileno())
        except psycopg.Error:  # It is closed.
            return False

    def _reset(self) -> None:
        """Drop a connection that is broken, inside a transaction, or not needed any more."""
        connection = self.connection
        if connection is None:
            return
        idle = connection.info.transaction_status == TransactionStatus.IDLE
        if connection.closed or not idle or self._closed or not self._users:
            self._drop()
        self._doubted = None  # A session that has just answered is open.

    def _drop(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            self._disconnect(connection)

    def _disconnect(self, connection: Connection) -> None:
        with contextlib.suppress(psycopg.Error):
            connection.close()
        self._watchdog.end()

    def _close_soon(self) -> None:
        """Close the connection, also if its statement does not end."""
        if not self._in_use.acquire(timeout=close_seconds()):
            self.interrupt()  # The thread that uses it closes it.
            return
        try:
            self._drop()
        finally:
            self._in_use.release()

    def _connect(self) -> Connection:
        """Connect; a server that restarts is often back within the time that this waits."""
        until = wait_deadline()
        while True:
            if self._closed:
                raise storage_closed()
            try:
                return self._try_to_connect()
            except StorageUnavailableError as error:
                if not current_deadline().left:
                    raise StorageUnavailableError(LATE) from error
                if time.monotonic() > until:
                    raise StorageUnavailableError(f"no connection for {PATIENCE:g} s: {error}") from error
            time.sleep(retry_interval())

    def _try_to_connect(self) -> Connection:
        self.server.check()
        try:
            with translated():
                connection = call_in_time(self._open, discard=lambda late: late.close())
        except TimeoutError as error:
            raise StorageUnavailableError(LATE) from error
        self._watchdog.begin()
        return connection

    def _open(self) -> Connection:
        return self.server.connect(application_name=self._application_name)


class DedicatedPool:
    """The background connection for one thread; after `close` that thread cannot use it again."""

    def __init__(self, shared: BackgroundConnection) -> None:
        self._shared = shared
        self._closed = False

    @asynccontextmanager
    async def session(self, *, for_handler: bool = False) -> AsyncGenerator[Session]:
        """Borrow the connection."""
        del for_handler  # Handlers have connections of their own.
        if self._closed:
            raise storage_closed()
        refuse_if_late()
        self._shared.add_user(self)
        with self._shared.session_connection() as connection:
            yield SyncSession(connection, self._shared.server.queries, self._shared.server.prepared)

    async def check(self) -> None:
        """Check that the database can be used."""
        self._shared.server.check()

    def drop(self) -> None:
        """Replace the connection."""
        self._shared.replace()

    async def close(self) -> None:
        """Leave the connection for good."""
        self._closed = True
        self._shared.remove_user(self)
