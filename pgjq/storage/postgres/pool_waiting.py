"""How long callers wait for a connection or a pool's end; which idle connections are dead."""

from __future__ import annotations

import random
import select
import time

from pgjq.deadline import current_deadline
from pgjq.errors import StorageUnavailableError

# How long a caller waits for a connection; a restarting server is often back within that time.
PATIENCE = 10.0
# psycopg_pool retries a failed connection with growing pauses, for minutes; a pool that gives up early tries again for
# the next caller. So the pool gives up soon and the caller asks again: a server that is back is found within two
# seconds. The pause is random, so that a fleet of workers does not connect all at once.
ASK_AGAIN = 1.0
LATE = "no connection came in time"
# `close` does not wait longer for a pool that connects to a silent server; the pool's threads end with that attempt.
CLOSE_SECONDS = 1.0


def refuse_if_late() -> None:
    """Raise StorageUnavailableError once the caller's deadline has passed."""
    if not current_deadline().left:
        raise StorageUnavailableError(LATE)


def wait_deadline() -> float:
    """Return the monotonic time at which a caller that waits for a connection gets an error."""
    return min(time.monotonic() + PATIENCE, current_deadline().until)


def close_seconds() -> float:
    """Return how long to wait for a pool to close, within the caller's deadline."""
    return min(CLOSE_SECONDS, max(0.1, current_deadline().left))


def retry_interval() -> float:
    """Return how long to ask a pool for a connection, before asking again."""
    pause = ASK_AGAIN * random.uniform(0.5, 1.0)  # noqa: S311  (no secret)
    return min(pause, max(current_deadline().left, 0.01))


def has_unread_bytes(socket: int) -> bool:
    """Return whether an idle connection has unread bytes: then the server has closed it.

    The check costs a microsecond and no round trip; with it, the next caller does not notice that a server was
    restarted. The other idle connections are replaced as well. A peer that vanished without closing the connection is
    found when a statement fails.
    """
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    return bool(poll.poll(0))
