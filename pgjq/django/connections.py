"""Database connections of Django around each run of a task.

A worker's threads live long, and Django keeps a connection for each thread. Before a run, connections that are too old
or do not answer are closed: Django opens others. After a run, the same holds, and a transaction that the task left open
is dropped with its connection. So a lost connection, or a task that misuses one, harms no later run.
"""

# pyright: basic

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import connections, reset_queries

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def clean_connections() -> Generator[None]:
    """Give the block connections that work, and leave none behind that does not."""
    reset_queries()
    _close_old()
    _close_unusable()
    # Those of a test: it has opened the transaction, and it will roll it back.
    opened = {connection.alias for connection in connections.all(initialized_only=True) if connection.in_atomic_block}
    try:
        yield
    finally:
        for connection in connections.all(initialized_only=True):
            if connection.in_atomic_block and connection.alias not in opened:
                connection.close()
                del connections[connection.alias]
        _close_old()


def _close_old() -> None:
    """Close old connections as Django does, but for those that a test put into a transaction."""
    for connection in connections.all(initialized_only=True):
        if not connection.in_atomic_block:
            connection.close_if_unusable_or_obsolete()


def _close_unusable() -> None:
    """Close connections that the server has ended; Django checks only after an error."""
    for connection in connections.all(initialized_only=True):
        is_open = connection.connection is not None and not connection.in_atomic_block
        if is_open and not connection.is_usable():
            connection.close()
