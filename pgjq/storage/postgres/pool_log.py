"""What psycopg_pool logs about pgjq's own pools: nothing, unless its logger is set to DEBUG.

The pool logs every failed try to connect and every connection that it discards, on the logger `psycopg.pool`. The
operation that needed the connection raises the same error, and the worker logs an outage in a few lines
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
    """Name a pool, so that its records are known."""
    return f"{PREFIX}{next(_numbers)}"


def mark(connection: Connection[Any]) -> None:
    """Have records about a new connection known as ours."""
    _ours.add(connection)


async def mark_async(connection: AsyncConnection[Any]) -> None:
    """Have records about a new connection known as ours."""
    _ours.add(connection)


def _passes(record: logging.LogRecord) -> bool:
    args = record.args if isinstance(record.args, tuple) else ()
    return _logger.isEnabledFor(logging.DEBUG) or not any(map(_is_ours, args))


def _is_ours(arg: object) -> bool:
    return arg.startswith(PREFIX) if isinstance(arg, str) else arg in _ours


_logger.addFilter(_passes)
