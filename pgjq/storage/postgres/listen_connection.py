"""A connection for LISTEN whose statements have a deadline.

psycopg waits for an answer without a limit. The listener must not: its peer may have vanished without closing the
connection, and the thread that asks holds a lock that others wait for. So this class uses libpq directly, and an answer
that does not come in time is an error like a broken connection. TCP keepalives also detect a dead host, but not a
network that accepts bytes and forwards none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import ExecStatus

from pgjq.deadline import current_deadline
from pgjq.storage.postgres.pool_waiting import close_seconds

if TYPE_CHECKING:
    from collections.abc import Callable

    from psycopg.pq.abc import PGconn, PGresult

    from pgjq.background import BackgroundThread

ANSWER_SECONDS: Final = 5.0
# A caller near its deadline still gives a healthy server this long to answer.
SHORTEST_SECONDS: Final = 0.2
ALIVE: Final[dict[str, Any]] = {
    "autocommit": True,
    "prepare_threshold": None,
    "application_name": "pgjq listener",
    "client_encoding": "UTF8",
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
WHO: Final = b"select pg_backend_pid()"


class ListenConnection:
    """One session for any thread; `deliver` gets notifications on the thread that reads them.

    `on_silence` is called when an answer does not come in time.
    """

    def __init__(
        self, conninfo: str, deliver: Callable[[str, str], None], on_silence: Callable[[], None] = lambda: None
    ) -> None:
        self._deliver = deliver
        self._on_silence = on_silence
        self._lock = threading.Lock()
        self._closing = threading.Lock()  # Held for moments, and not while a statement runs.
        options: dict[str, Any] = {"connect_timeout": max(2, int(ANSWER_SECONDS))} | ALIVE
        if "connect_timeout" in conninfo_to_dict(conninfo):
            del options["connect_timeout"]
        self._connection = psycopg.connect(conninfo, **options)
        self.last_word = time.monotonic()
        try:
            self._backend = self.ask(WHO)
        except BaseException:
            self._connection.close()
            raise
        # A pooler invents a process number when it greets a client, and shares its sessions among clients.
        self.is_pooled = self._backend != str(self._connection.info.backend_pid)

    def fileno(self) -> int:
        """Return the socket to poll for notifications."""
        return self._connection.fileno()

    def is_same_session(self) -> bool:
        """Return whether the session that was opened still answers."""
        return self.ask(WHO) == self._backend

    def ask(self, query: bytes, params: dict[str, Any] | None = None) -> str | None:
        """Run a statement and return its first value as text; OperationalError if it is late."""
        with self._lock:
            text = psycopg.ClientCursor(self._connection).mogrify(query, params) if params else query.decode()
            pgconn = self._connection.pgconn
            pgconn.send_query(text.encode())
            return _first_value(self._results(pgconn))

    def duplicate(self) -> int | None:
        """Return a descriptor of the socket for another thread; None if the connection is closed."""
        with self._closing:
            try:
                return os.dup(self._connection.fileno())
            except (psycopg.Error, OSError):
                return None

    def read(self, *, blocking: bool = True) -> None:
        """Deliver the notifications that have arrived.

        If not `blocking`, a thread that is running a statement delivers them, with its answer.
        """
        if not self._lock.acquire(blocking=blocking):
            return
        try:
            self._connection.pgconn.consume_input()
            self._dispatch(self._connection.pgconn)
        finally:
            self._lock.release()

    def interrupt(self) -> None:
        """End the wait of another thread for an answer."""
        if (descriptor := self.duplicate()) is not None:
            with contextlib.suppress(OSError), socket.socket(fileno=descriptor) as line:
                line.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End the session."""
        with self._lock, self._closing:
            self._connection.close()

    def _results(self, pgconn: PGconn) -> list[PGresult]:
        """Wait for the results of the statement that was sent."""
        until = min(
            time.monotonic() + ANSWER_SECONDS, max(current_deadline().until, time.monotonic() + SHORTEST_SECONDS)
        )
        results: list[PGresult] = []
        while True:
            unsent = pgconn.flush()
            if not pgconn.is_busy():
                if (result := pgconn.get_result()) is None:
                    self._dispatch(pgconn)
                    return results
                results.append(result)
                continue
            if not _wait(pgconn.socket, until, sending=bool(unsent)):
                self._on_silence()
                raise psycopg.OperationalError("the server did not answer in time")
            pgconn.consume_input()

    def _dispatch(self, pgconn: PGconn) -> None:
        self.last_word = time.monotonic()
        while (notice := pgconn.notifies()) is not None:
            try:
                channel, payload = notice.relname.decode(), notice.extra.decode()
            except UnicodeDecodeError:  # Sent in a database that checks no encoding, and not by pgjq.
                logging.getLogger("pgjq").warning("notification ignored, it is not UTF-8: channel %r", notice.relname)
            else:
                self._deliver(channel, payload)


def join_reader(thread: BackgroundThread, connection: ListenConnection | None) -> None:
    """Wait for a thread that was told to end, and end its wait for an answer.

    It may be connecting, too.
    """
    thread.join(close_seconds())
    if connection is not None and thread.is_alive():
        connection.interrupt()
    thread.join(4 * close_seconds())


def _wait(descriptor: int, until: float, *, sending: bool) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN | (select.POLLOUT if sending else 0))
    return bool(poll.poll(max(0.0, until - time.monotonic()) * 1000))


def _first_value(results: list[PGresult]) -> str | None:
    for result in results:
        if result.status not in (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK):
            raise psycopg.OperationalError(result.error_message.decode(errors="replace"))
    value = results[0].get_value(0, 0) if results and results[0].ntuples else None
    return None if value is None else value.decode()
