"""Leader election in PostgreSQL: one leader at a time in each role.

Leadership is a session advisory lock on a connection of its own. Rules, and what each failure does:

* A candidate leads while this very session holds the lock. Each call to `elect` proves it by asking the session for its
  locks and for its process number, which must be the one that greeted the session. Behind a pooler it is not, and other
  clients could get the lock: so `elect` raises an `UnsupportedError` that says what to do.
* The server ends a session that is silent for `ttl` seconds (`idle_session_timeout`), and frees its lock. So a leader
  that is stopped or cut off loses leadership at most `ttl` after its last proof, and a leader that cannot prove
  leadership within that time must stop acting: see the trust window in `pgjq.leader`.
* A session that the server has ended is detected without a query: the server's last message is in its socket (`leads`).
* A crash closes the session at once. `resign` unlocks and closes it; if a proof waits for a server that does not
  answer, `resign` shuts the socket down, which ends the wait here and the session there.

Leadership saves work. Correctness never depends on it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq.deadline import current_deadline
from pgjq.errors import StorageUnavailableError, UnsupportedError, storage_closed
from pgjq.fork import ForkCheck
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.pool import has_news
from pgjq.storage.postgres.watchdog import hang_up

if TYPE_CHECKING:
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.watchdog import Watchdog

# A reachable server takes no longer than this to greet a session.
CONNECT_SECONDS = 10
GOODBYE_SECONDS = 1.0
# The largest value of a PostgreSQL setting, 24 days.
LONGEST_MS = 2**31 - 1


class LeaderLocks:
    """The leader locks of the candidates of this process. Every method blocks."""

    def __init__(self, conninfo: str, queries: Queries, watchdog: Watchdog) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._watchdog = watchdog
        self._lock = threading.Lock()
        self._fork = ForkCheck()
        self._inherited: list[object] = []
        self._leader_locks: dict[tuple[str, str], LeaderLock] = {}
        self._closed = False

    def elect(self, role: str, candidate: str, ttl: float) -> bool:
        """Take leadership, or prove it; return whether the candidate leads."""
        if self._closed:
            raise storage_closed()
        return self._leader_lock(role, candidate).elect(ttl)

    def leads(self, role: str, candidate: str) -> bool:
        """Return whether the candidate may still lead, as far as its connection knows."""
        return self._leader_lock(role, candidate).may_lead()

    def resign(self, role: str, candidate: str) -> None:
        """Give up leadership."""
        self._leader_lock(role, candidate).leave()

    def close(self) -> None:
        """Give up every leadership and refuse new elections."""
        self._closed = True
        for role, candidate in list(self._leader_locks):
            self.resign(role, candidate)

    def _leader_lock(self, role: str, candidate: str) -> LeaderLock:
        with self._lock:
            if self._fork.happened:  # The sessions are the parent's; closing them here would break them.
                self._inherited.append(self._leader_locks)
                self._fork, self._leader_locks = ForkCheck(), {}
            return self._leader_locks.setdefault(
                (role, candidate), LeaderLock(self._conninfo, self._queries, self._watchdog, role)
            )


class LeaderLock:
    """The session of one candidate, while it leads."""

    def __init__(self, conninfo: str, queries: Queries, watchdog: Watchdog, role: str) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._watchdog = watchdog
        self._role = role
        self._session_lock = threading.Lock()
        self._leaving = False
        self._doubted = False
        self._session: psycopg.Connection[Any] | None = None

    def elect(self, ttl: float) -> bool:
        """Take leadership, or prove it; after a failed proof, try to take it again."""
        with self._session_lock:
            self._leaving = False
            holds = self._holds("leader_prove", ttl) or (not self._leaving and self._take(ttl))
            self._doubted = not holds
            return holds

    def may_lead(self) -> bool:
        """Return whether the session is open; the server ends it before it frees the lock.

        While a proof is in flight, arriving bytes are its answer. A doubt lasts until the next proof.
        """
        session = self._session
        if session is None or self._doubted:
            return False
        if not self._session_lock.locked():
            try:
                self._doubted = has_news(session.fileno())
            except psycopg.Error:
                self._doubted = True
        return not self._doubted

    def leave(self) -> None:
        """Give up leadership, also if the server does not answer."""
        if not self._session_lock.acquire(blocking=False):
            self._leaving = True
            self._hang_up()
            if not self._session_lock.acquire(timeout=min(GOODBYE_SECONDS, current_deadline().left)):
                return  # `elect` is connecting, and sees `_leaving` afterwards.
        try:
            self._unlock()
            self._close()
        finally:
            self._session_lock.release()

    def _unlock(self) -> None:
        """Release the lock before returning; do not wait for a server that does not answer."""
        session = self._session
        if session is not None and not session.closed:
            timer = threading.Timer(min(GOODBYE_SECONDS, current_deadline().left), self._hang_up)
            timer.start()
            with contextlib.suppress(psycopg.Error):
                session.execute(self._queries.psycopg("leader_leave"), self._key())
            timer.cancel()

    def _take(self, ttl: float) -> bool:
        self._close()
        with translated():
            self._session = psycopg.connect(
                self._conninfo,
                autocommit=True,
                prepare_threshold=None,
                client_encoding="UTF8",
                application_name=f"pgjq {self._role}"[:63],
                connect_timeout=max(2, min(CONNECT_SECONDS, round(ttl))),
                tcp_user_timeout=_milliseconds(ttl),
            )
        self._watchdog.begin()
        holds = False
        try:
            holds = not self._leaving and self._holds("leader_take", ttl)
        finally:
            if not holds:
                self._close()
        return holds

    def _holds(self, query: str, ttl: float) -> bool:
        session = self._session
        if session is None:
            return False
        greeted_by = session.info.backend_pid
        params = self._key() | {"ttl": f"{_milliseconds(ttl)}ms", "greeted_by": greeted_by}
        lent = self._watchdog.lend(session)
        try:
            with translated():
                row = session.execute(self._queries.psycopg(query), params).fetchone()
        except StorageUnavailableError:
            return False
        finally:
            self._watchdog.give_back(lent)
        answering, holds = row or (greeted_by, False)
        if answering != greeted_by:
            message = (
                f"leader election needs a direct connection to PostgreSQL: process {greeted_by} accepted this one and "
                f"process {answering} answers, so a pooler is in between"
            )
            raise UnsupportedError(message)
        return holds

    def _key(self) -> dict[str, Any]:
        return {"office": self._queries.channel("leader"), "role": self._role}

    def _hang_up(self) -> None:
        session = self._session
        if session is not None:
            hang_up(session)

    def _close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                session.close()
            self._watchdog.end()


def _milliseconds(seconds: float) -> int:
    return max(1, min(round(seconds * 1000), LONGEST_MS))
