"""Leadership: one candidate at a time in each role, in PostgreSQL.

The office is a session advisory lock on a connection of its own. Rules, and what each failure does:

* To lead is to hold the lock in this very session. Each call to `elect` proves it by asking that session for its
  locks, and for the process that answers: it must be the one that greeted the session. Behind a pooler it is not, the
  lock would be anybody's, and so nobody leads: that is an `UnsupportedError`, which says what to do.
* The server ends a session that has said nothing for `ttl` seconds (`idle_session_timeout`), and the lock with it. So a
  leader that is stopped, or cut off without a word, is out of office at the latest `ttl` after its last proof, and a
  leader that cannot prove its office within that time must stop acting: see the trust window in `pgjq.leader`.
* A session that the server ends is found out without a question: a goodbye lies in its socket (`leads`).
* A crash closes the session at once. `resign` unlocks and closes it in good order; if a proof is waiting for a server
  that does not answer, it shuts the socket, which ends that wait here and the session there.

Leadership saves work. Nothing's correctness depends on it.
"""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq.deadline import current_deadline
from pgjq.errors import StorageError, StorageUnavailableError, UnsupportedError
from pgjq.storage.postgres.error_translation import translated
from pgjq.storage.postgres.pool import has_news
from pgjq.storage.postgres.watchdog import hang_up

if TYPE_CHECKING:
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.watchdog import Watchdog

# Longer than this a server that can be reached does not take to greet.
CONNECT_SECONDS = 10
GOODBYE_SECONDS = 1.0
# The longest that PostgreSQL's settings can hold, 24 days.
LONGEST_MS = 2**31 - 1


class LeaderLocks:
    """The offices that candidates of this process hold or want. Every method blocks."""

    def __init__(self, conninfo: str, queries: Queries, watchdog: Watchdog) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._watchdog = watchdog
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._inherited: list[object] = []
        self._leader_locks: dict[tuple[str, str], LeaderLock] = {}
        self._closed = False

    def elect(self, role: str, candidate: str, ttl: float) -> bool:
        """Take the office, or prove to hold it."""
        if self._closed:
            raise StorageError("this storage has been closed")
        return self._office(role, candidate).elect(ttl)

    def leads(self, role: str, candidate: str) -> bool:
        """Tell whether the office may still be held, as far as its connection knows."""
        return self._office(role, candidate).may_lead()

    def resign(self, role: str, candidate: str) -> None:
        """Leave the office."""
        self._office(role, candidate).leave()

    def close(self) -> None:
        """Leave every office, and take none any more."""
        self._closed = True
        for role, candidate in list(self._leader_locks):
            self.resign(role, candidate)

    def _office(self, role: str, candidate: str) -> LeaderLock:
        with self._lock:
            if self._process != os.getpid():  # The sessions are the parent's, and must not even be closed here.
                self._inherited.append(self._leader_locks)
                self._process, self._leader_locks = os.getpid(), {}
            return self._leader_locks.setdefault(
                (role, candidate), LeaderLock(self._conninfo, self._queries, self._watchdog, role)
            )


class LeaderLock:
    """One candidate's session, if it leads."""

    def __init__(self, conninfo: str, queries: Queries, watchdog: Watchdog, role: str) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._watchdog = watchdog
        self._role = role
        self._talking = threading.Lock()
        self._leaving = False
        self._doubted = False
        self._session: psycopg.Connection[Any] | None = None

    def elect(self, ttl: float) -> bool:
        """Take the office, or prove to hold it; after a proof that failed, stand again."""
        with self._talking:
            self._leaving = False
            holds = self._asks("leader_prove", ttl) or (not self._leaving and self._stand(ttl))
            self._doubted = not holds
            return holds

    def may_lead(self) -> bool:
        """Tell whether there is a session that has not been ended; the server says goodbye before it frees the lock.

        While a proof is on its way, what arrives is its answer. A doubt lasts until the next proof.
        """
        session = self._session
        if session is None or self._doubted:
            return False
        if not self._talking.locked():
            try:
                self._doubted = has_news(session.fileno())
            except psycopg.Error:
                self._doubted = True
        return not self._doubted

    def leave(self) -> None:
        """Leave the office, whatever the server says or does not say."""
        if not self._talking.acquire(blocking=False):
            self._leaving = True
            self._hang_up()
            if not self._talking.acquire(timeout=min(GOODBYE_SECONDS, current_deadline().left)):
                return  # It is connecting, and sees when it has done so that it was to leave.
        try:
            self._unlock()
            self._close()
        finally:
            self._talking.release()

    def _unlock(self) -> None:
        """Give the lock back, so that it is free when this returns; a server that does not answer is not waited for."""
        session = self._session
        if session is not None and not session.closed:
            silence = threading.Timer(min(GOODBYE_SECONDS, current_deadline().left), self._hang_up)
            silence.start()
            with contextlib.suppress(psycopg.Error):
                session.execute(self._queries.psycopg("leader_leave"), self._key())
            silence.cancel()

    def _stand(self, ttl: float) -> bool:
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
            holds = not self._leaving and self._asks("leader_take", ttl)
        finally:
            if not holds:
                self._close()
        return holds

    def _asks(self, query: str, ttl: float) -> bool:
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
                f"nobody can lead through this connection: process {greeted_by} greeted it and process {answering} "
                "answers, so a pooler stands in between; give leaders a direct connection to PostgreSQL"
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
