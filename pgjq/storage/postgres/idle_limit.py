"""Limit the idle time of handlers' transactions, so that a dead worker frees row locks.

The server ends a session that is idle inside a transaction for longer than the limit. Rules:

* The limit is the time after which the run is certainly over, and a margin (`pgjq.worker.run.idle_limit`), so it cuts
  off no handler that still holds its job.
* SET LOCAL: the session has its own value back after the transaction. A lower limit of the session stays in force.
* SHOW and SET take no snapshot: the handler's first statement may still set the isolation level.
* A handler that renews its lease by `job.heartbeat()` restarts the limit with a statement. Only the thread or task that
  opened the transaction may use its connection; psycopg's sync connections may be used by any thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from math import inf
from typing import TYPE_CHECKING, Any, Final

import psycopg
from psycopg.pq import TransactionStatus

from pgjq.errors import StorageError

if TYPE_CHECKING:
    from pgjq.storage.postgres.session import Session

LONGEST_SECONDS: Final = 2_147_483.0  # The largest value of the setting, 25 days.
UNITS: Final = {"ms": 0.001, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
DRIVERS: Final = frozenset(("psycopg", "psycopg2", "asyncpg", "sqlalchemy", "django"))


class IdleLimit:
    """The idle limit of one transaction; `seconds` is None for no limit."""

    def __init__(self, session: Session, seconds: float | None) -> None:
        self._session = session
        self._seconds = inf if seconds is None else min(seconds, LONGEST_SECONDS)
        self._owner = _current_owner()
        self._began = time.monotonic()

    async def begin(self, *commands: str) -> None:
        """Run commands and set the limit, in one message where the driver can."""
        if self._seconds < inf:
            ((shown,),) = await self._session.fetch("idle_limit", {})
            own = parse_seconds(shown)
            if not own or own > self._seconds:
                commands = (*commands, self._command())
        await self._session.command(*commands)

    async def restart(self) -> None:
        """Count idle time from now on; do nothing while another thread uses the connection."""
        if self._seconds < inf and self._may_use_connection():
            with suppress(StorageError):  # The handler's next statement gets the same error.
                await self._session.command(self._command())

    def may_have_ended(self, error: BaseException) -> bool:
        """Return whether an error may come from a session that the server ended at this limit."""
        if time.monotonic() - self._began < self._seconds:
            return False
        found: BaseException | None = error
        while found is not None:
            if isinstance(found, StorageError) or type(found).__module__.partition(".")[0] in DRIVERS:
                return True
            found = found.__cause__ or found.__context__
        return False

    def _command(self) -> str:
        return f"set local idle_in_transaction_session_timeout = {max(1, round(self._seconds * 1000))}"

    def _may_use_connection(self) -> bool:
        connection = self._session.connection
        if isinstance(connection, psycopg.Connection | psycopg.AsyncConnection):
            # A session inside a COPY or a stream is not idle, and cannot run another statement.
            if connection.info.transaction_status != TransactionStatus.INTRANS:
                return False
            return isinstance(connection, psycopg.Connection) or _current_owner() == self._owner
        return _current_owner() == self._owner


def _current_owner() -> tuple[int, Any]:
    """Return the thread, and the task if there is one, that runs this code."""
    try:
        return threading.get_ident(), asyncio.current_task()
    except RuntimeError:
        return threading.get_ident(), None


def parse_seconds(shown: str) -> float:
    """Return a duration that SHOW has written, such as `90s`, in seconds."""
    unit = shown.lstrip("0123456789")
    return int(shown.removesuffix(unit)) * UNITS[unit or "ms"]
