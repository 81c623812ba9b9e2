"""Drop psycopg_pool's log records about pgjq's own pools, unless its logger is set to DEBUG.

The pool logs every failed connection attempt and every discarded connection, on the logger `psycopg.pool`. The
operation that needs the connection raises the same error, and the worker logs an outage in a few lines
(`pgjq.worker.fault_log`). Records about other pools of the process pass.
"""

from __future__ import annotations

import logging
from itertools import count
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

if TYPE_CHECKING:
    from psycopg import AsyncConnection, Connection

PREFIX: Final = "pgjq-pool-"
_numbers = count(1)
_ours: WeakSet[Connection[Any] | AsyncConnection[Any]] = WeakSet()
_logger = logging.getLogger("psycopg.pool")


def pool_name() -> str:
    """Return a name by which the filter recognises a pool's records."""
    return f"{PREFIX}{next(_numbers)}"


def mark(connection: Connection[Any]) -> None:
    """Mark a new connection, so that the filter recognises records about it."""
    _ours.add(connection)


async def mark_async(connection: AsyncConnection[Any]) -> None:
    """Mark a new connection, so that the filter recognises records about it."""
    _ours.add(connection)


def _passes(record: logging.LogRecord) -> bool:
    args = record.args if isinstance(record.args, tuple) else ()
    return _logger.isEnabledFor(logging.DEBUG) or not any(map(_is_ours, args))


def _is_ours(arg: object) -> bool:
    return arg.startswith(PREFIX) if isinstance(arg, str) else arg in _ours


_logger.addFilter(_passes)
