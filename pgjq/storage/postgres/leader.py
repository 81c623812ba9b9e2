"""Leadership: one candidate at a time in each role, in PostgreSQL.

The office is a session advisory lock on a connection of its own. Rules, and what each failure does:

* To lead is to hold the lock in this very session. Each call to `elect` proves it by asking that session for its
  locks; a session behind a pooler that changed hands does not have it, and then this candidate does not lead.
* The server ends a session that has said nothing for `ttl` seconds (`idle_session_timeout`), and the lock with it. So a
  leader that is stopped, or cut off without a word, is out of office at the latest `ttl` after its last proof, and a
  leader that cannot prove its office within that time must stop acting: see the trust window of the reaper.
* A crash closes the session at once; `resign` closes it in good order.

Leadership saves work. Nothing's correctness depends on it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import psycopg

from pgjq.storage.postgres.failures import translated

if TYPE_CHECKING:
    from pgjq.storage.postgres.queries import Queries


class Offices:
    """The offices that candidates of this process hold or want. Every method blocks."""

    def __init__(self, conninfo: str, queries: Queries) -> None:
        self._conninfo = conninfo
        self._queries = queries
        self._lock = threading.Lock()
        self._sessions: dict[tuple[str, str], psycopg.Connection[Any]] = {}

    def elect(self, role: str, candidate: str, ttl: float) -> bool:
        """Take the office, or prove to hold it."""
        with self._lock:
            held = self._sessions.get((role, candidate))
            if held is not None:
                if self._asks(held, "leader_prove", role, ttl):
                    return True
                self._leave(role, candidate)
            return self._stand(role, candidate, ttl)

    def resign(self, role: str, candidate: str) -> None:
        """Leave the office."""
        with self._lock:
            self._leave(role, candidate)

    def close(self) -> None:
        """Leave every office."""
        with self._lock:
            for role, candidate in list(self._sessions):
                self._leave(role, candidate)

    def _stand(self, role: str, candidate: str, ttl: float) -> bool:
        with translated():
            session = psycopg.connect(
                self._conninfo, autocommit=True, prepare_threshold=None, application_name=f"pgjq {role}"[:63]
            )
        if not self._asks(session, "leader_take", role, ttl):
            session.close()
            return False
        self._sessions[role, candidate] = session
        return True

    def _asks(self, session: psycopg.Connection[Any], query: str, role: str, ttl: float) -> bool:
        key = {"office": self._queries.channel("leader"), "role": role, "ttl": f"{round(ttl * 1000)}ms"}
        try:
            row = session.execute(self._queries.psycopg(query), key).fetchone()
        except psycopg.OperationalError:
            return False
        return bool(row and row[0])

    def _leave(self, role: str, candidate: str) -> None:
        session = self._sessions.pop((role, candidate), None)
        if session is not None:
            with contextlib.suppress(psycopg.Error):
                session.close()
