"""Ends the wait for a server that does not answer.

libpq waits for an answer without a limit. TCP detects a vanished host, but not a peer that accepts bytes and never
answers: a frozen server, a proxy with one end open, a firewall. A limit for every statement would also end statements
that wait for a lock or run long. So a thread checks the connections in use:

* After `SILENT_SECONDS` without an answer, the watchdog asks about the session over a new connection. If the server
  cannot be reached, does not know the session, or reports that the session waits for its client, the answer will never
  come: the watchdog shuts the socket down, which ends the wait with an error. A session that is active goes on and is
  checked again later. These checks run in a thread of their own.
* A session that was lost without notice is rarely the only one: the idle connections of the pools are replaced and the
  listener is probed, so that callers do not wait for each in turn.
* A connection whose caller's deadline (`pgjq.deadline`) has passed is shut down at once.
* Behind a pooler a session cannot be found by its process number. There the watchdog gives up a statement of pgjq's own
  after `POOLED_SECONDS` without an answer.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from pgjq.background import BackgroundThread
from pgjq.deadline import Deadline, current_deadline
from pgjq.fork import ForkCheck
from pgjq.storage.postgres.listen_connection import ListenConnection

if TYPE_CHECKING:
    from collections.abc import Callable

TICK_SECONDS: Final = 0.25
SILENT_SECONDS: Final = 5.0
ASK_AGAIN_SECONDS: Final = 5.0
POOLED_SECONDS: Final = 60.0
STATES: Final = (
    "select string_agg(pid || ' ' || coalesce(state, 'hidden'), ',') from pg_stat_activity where pid in ({})"
)
GONE: Final = "gone"
UNREACHABLE: Final = "unreachable"


class WatchedConnection:
    """A borrowed connection, and how long it has waited for an answer."""

    __slots__ = ("asked", "connection", "deadline", "for_handler", "idle_looks", "waits_since")

    def __init__(self, connection: Any, *, for_handler: bool) -> None:
        self.connection = connection
        self.deadline: Deadline = current_deadline()
        self.for_handler = for_handler
        self.waits_since: float | None = None
        self.asked = 0.0
        self.idle_looks = 0

    def waits(self, now: float) -> float:
        """Return how long this connection has been observed waiting for an answer."""
        if self.connection.pgconn.transaction_status != TransactionStatus.ACTIVE:
            self.waits_since, self.idle_looks = None, 0
            return 0.0
        if self.waits_since is None:
            self.waits_since = now
        return now - self.waits_since


class Watchdog:
    """The borrowed connections of one storage, and the thread that checks them."""

    def __init__(self, conninfo: str, is_pooled: Callable[[], bool], on_lost: Callable[[], None]) -> None:
        self._conninfo = conninfo
        self._is_pooled = is_pooled
        self._on_lost = on_lost
        self._lent: set[WatchedConnection] = set()
        self._lock = threading.Lock()
        self._pools = 0
        self._thread: BackgroundThread | None = None
        self._ending = threading.Event()
        self._fork = ForkCheck()

    def watch(self, connection: Any, *, for_handler: bool = False) -> WatchedConnection:
        """Watch a connection until `give_back`."""
        lent = WatchedConnection(connection, for_handler=for_handler)
        self._lent.add(lent)
        return lent

    def unwatch(self, lent: WatchedConnection) -> None:
        """Stop watching a connection."""
        self._lent.discard(lent)

    def begin(self) -> None:
        """Count a pool that opens; the first one starts the thread."""
        with self._lock:
            if self._fork.happened:  # The thread and its connections belong to the parent.
                self._fork, self._pools, self._thread, self._lent = ForkCheck(), 0, None, set()
            self._pools += 1
            if self._thread is None:
                self._ending = ending = threading.Event()
                self._thread = BackgroundThread("pgjq watchdog", lambda: self._run(ending), ending.wait)
                self._thread.start()

    def end(self) -> None:
        """Count a pool that closes; the last one ends the thread."""
        with self._lock:
            if self._fork.happened:
                return
            self._pools -= 1
            if self._pools or self._thread is None:
                return
            self._ending.set()
            thread, self._thread = self._thread, None
        thread.join(TICK_SECONDS)

    def _run(self, ending: threading.Event) -> None:
        question: BackgroundThread | None = None
        while not ending.wait(TICK_SECONDS):
            now = time.monotonic()
            silent = [lent for lent in tuple(self._lent) if self._is_silent(lent, now)]
            if silent and (question is None or not question.is_alive()):
                question = self._start_session_check(silent, ending)

    def _start_session_check(self, silent: list[WatchedConnection], ending: threading.Event) -> BackgroundThread:
        """Check sessions on a thread, because a connection attempt must not delay deadlines."""
        once = iter([silent])  # After an unexpected error the next check is about the sessions that are silent then.
        thread = BackgroundThread("pgjq watchdog question", lambda: [*map(self._judge, once)], ending.wait)
        thread.start()
        return thread

    def _is_silent(self, lent: WatchedConnection, now: float) -> bool:
        """Return whether to ask about a connection; shut it down if its deadline has passed."""
        waits = lent.waits(now)
        if waits and now >= lent.deadline.until:
            shut_down_socket(lent.connection)
            return False
        return waits >= SILENT_SECONDS and now >= lent.asked + ASK_AGAIN_SECONDS

    def _judge(self, silent: list[WatchedConnection]) -> None:
        pids = {lent: pid for lent in silent if (pid := _backend_pid(lent.connection))}
        states = self._read_session_states([*pids.values()]) if pids else None
        now = time.monotonic()
        lost: list[WatchedConnection] = []
        for lent, pid in pids.items():
            lent.asked = now
            if states is None:
                continue
            state = states.get(pid, GONE)
            if lent.waits_since is not None and self._is_lost(lent, state, now):
                lost.append(lent)
        if lost:
            self._on_lost()
        for lent in lost:
            shut_down_socket(lent.connection)

    def _is_lost(self, lent: WatchedConnection, state: str, now: float) -> bool:
        if state == GONE and self._is_pooled():
            return not lent.for_handler and lent.waits(now) >= POOLED_SECONDS
        if state.startswith("idle"):
            # The answer may have arrived between two checks; a session that is idle at both has lost it.
            lent.idle_looks += 1
            lent.asked = 0.0
            return lent.idle_looks > 1
        return state in (GONE, UNREACHABLE)

    def _read_session_states(self, pids: list[int]) -> dict[int, str] | None:
        """Read the state of sessions over a new connection; None if the server refuses the query."""
        try:
            line = ListenConnection(self._conninfo, lambda _channel, _payload: None)
            try:
                found = line.ask(STATES.format(",".join(map(str, pids))).encode())
            finally:
                line.close()
        except psycopg.Error as error:
            # "Too many clients" is an answer: the server is up.
            return None if "FATAL" in str(error) else dict.fromkeys(pids, UNREACHABLE)
        rows = (row.partition(" ") for row in (found or "").split(",") if row)
        return {int(pid): state for pid, _, state in rows}


def _backend_pid(connection: Any) -> int:
    """Return the process number of a connection's session; 0 if the connection is closed."""
    try:
        return connection.pgconn.backend_pid
    except psycopg.Error:
        return 0


def shut_down_socket(connection: Any) -> None:
    """End a wait for an answer from another thread, by shutting the socket down."""
    with contextlib.suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(connection.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
