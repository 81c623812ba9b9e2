"""Leader election in PostgreSQL: one leader at a time in each role.

Leadership is a session advisory lock of the background connection. Rules, and what each failure does:

* A candidate leads while this very session holds the lock. Each call to `elect` proves it by asking the session for its
  locks and for its process number, which must be the one that greeted the session. Behind a pooler it is not, and other
  clients could get the lock: so `elect` raises an `UnsupportedError` that says what to do.
* The server ends a session that is silent for `ttl` seconds (`idle_session_timeout`), and frees its locks. So a leader
  that is stopped or cut off loses leadership at most `ttl` after its last statement, and a leader that cannot prove
  leadership within that time must stop acting: see the trust window in `pgjq.worker.leadership`.
* A session that the server has ended is detected without a query: the server's last message is in its socket (`leads`).
* A session gets a lock that it already holds. So only one candidate of this process can hold the lock of a role.
* A crash closes the session at once. `resign` unlocks; if the server does not answer, it shuts the socket down, which
  ends the wait here and the session there.

Leadership saves work. Correctness never depends on it.
"""

from __future__ import annotations

from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pgjq.deadline import Deadline, bounded, current_deadline
from pgjq.errors import StorageError, StorageUnavailableError, UnsupportedError, storage_closed
from pgjq.fork import ForkCheck
from pgjq.storage.postgres.error_translation import translated

if TYPE_CHECKING:
    from pgjq.storage.postgres.background_connection import BackgroundConnection, Connection

STOP_SECONDS: Final = 1.0
# The largest value of a PostgreSQL setting, 24 days.
LONGEST_MS: Final = 2**31 - 1


class _HeldLock(NamedTuple):
    """The lock of a role: who holds it, and in which session."""

    candidate: str
    connection: Connection
    ttl: float


class LeaderLocks:
    """The leader locks of the candidates of this process. Every method blocks."""

    def __init__(self, background: BackgroundConnection) -> None:
        self._background = background
        self._fork = ForkCheck()
        self._held: dict[str, _HeldLock] = {}  # By role; changed by the thread that has borrowed the connection.
        self._inherited: list[object] = []
        self._closed = False

    def elect(self, role: str, candidate: str, ttl: float) -> bool:
        """Take leadership, or prove it; return whether the candidate leads.

        A proof without an answer breaks the connection; the lock may be free, so the candidate tries to take it again.
        """
        if self._closed:
            raise storage_closed()
        self._leave_to_parent()
        self._background.add_user((role, candidate))
        try:
            return self._elect(role, candidate, ttl)
        except StorageUnavailableError:
            if role not in self._held:
                raise
            del self._held[role]
            return self._elect(role, candidate, ttl)

    def leads(self, role: str, candidate: str) -> bool:
        """Return whether the candidate may still lead, as far as its connection knows."""
        held = self._held.get(role)
        if held is None or held.candidate != candidate or self._fork.happened:
            return False
        return held.connection is self._background.connection and self._background.is_open()

    def resign(self, role: str, candidate: str) -> None:
        """Give up leadership, also if the server does not answer."""
        self._leave_to_parent()
        held = self._held.get(role)
        if held is not None and held.candidate == candidate:
            with bounded(Deadline(min(STOP_SECONDS, current_deadline().left))), suppress(StorageError):
                self._unlock(role, held)
        self._background.remove_user((role, candidate))

    def close(self) -> None:
        """Give up every leadership, close the connection, and refuse new elections."""
        self._closed = True
        for role, held in list(self._held.items()):
            self.resign(role, held.candidate)
        self._background.close()

    def _elect(self, role: str, candidate: str, ttl: float) -> bool:
        with self._background.borrow(ttl) as connection:
            if connection is None:
                return False
            held = self._held.get(role)
            if held is not None and held.connection is connection:
                if held.candidate != candidate:
                    return False
                query = "leader_verify"
            else:
                query = "leader_acquire"
            holds = self._fetch_bool(connection, query, role, min(ttl, self._shortest(role)))
            if holds:
                self._held[role] = _HeldLock(candidate, connection, ttl)
            else:
                self._held.pop(role, None)
            return holds

    def _unlock(self, role: str, held: _HeldLock) -> None:
        del self._held[role]
        if held.connection is not self._background.connection:
            return
        with self._background.borrow(STOP_SECONDS) as connection:
            if connection is None:
                self._background.interrupt()
            elif connection is held.connection:
                params = self._key(role) | {"ttl": _setting(self._shortest(role))}
                with translated():
                    connection.execute(self._background.server.queries.psycopg("leader_resign"), params, prepare=False)

    def _fetch_bool(self, connection: Connection, query: str, role: str, ttl: float) -> bool:
        greeted_by = connection.info.backend_pid
        params = self._key(role) | {"ttl": _setting(ttl), "greeted_by": greeted_by}
        with translated():
            row = connection.execute(self._background.server.queries.psycopg(query), params, prepare=False).fetchone()
        answering, holds = row or (greeted_by, False)
        if answering != greeted_by:
            message = (
                f"leader election needs a direct connection to PostgreSQL: process {greeted_by} accepted this one and "
                f"process {answering} answers, so a pooler is in between"
            )
            raise UnsupportedError(message)
        return holds

    def _shortest(self, role: str) -> float:
        """Return the shortest ttl among the other roles that this process leads."""
        current = self._background.connection
        others = (held.ttl for other, held in self._held.items() if other != role and held.connection is current)
        return min(others, default=inf)

    def _key(self, role: str) -> dict[str, Any]:
        return {"lock": self._background.server.queries.channel("leader"), "role": role}

    def _leave_to_parent(self) -> None:
        """Start without locks in a forked child: the session is the parent's."""
        if self._fork.happened:
            self._inherited.append(self._held)
            self._fork, self._held = ForkCheck(), {}


def _setting(ttl: float) -> str:
    """Return a time-out as the value of a setting; 0 means none."""
    return "0" if ttl == inf else f"{max(1, min(round(min(ttl, LONGEST_MS) * 1000), LONGEST_MS))}ms"
