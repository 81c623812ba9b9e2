"""The storage of the demo: a PostgreSQL that it starts, or the one named by the user."""

from __future__ import annotations

import signal
import time
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from pgjq.cli.open_database import database, is_postgres
from pgjq.cli.signal_cleanup import SIGNALS
from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import throwaway_directory
from pgjq.migrate import migrate
from pgjq.open import open_storage
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from collections.abc import Generator

    from rich.console import Console

    from pgjq.storage.base import Storage


def open_demo_storage(name: str) -> Storage:
    """Open the storage of the demo and its workers: a URL, or PostgreSQL's connection string."""
    return PostgresStorage(name) if is_postgres(name) else open_storage(name)


@contextmanager
def place(url: str | None, console: Console) -> Generator[str]:
    """Yield a storage that is ready: the named one, or a temporary one.

    A named PostgreSQL is connected to and migrated first; other storages need no preparation.
    """
    if url is not None and not is_postgres(url):
        yield url
        return
    begun = time.monotonic()
    with database(url) if url else _throwaway() as conninfo:
        started = time.monotonic()
        migrate(conninfo)
        console.print(
            f"  PostgreSQL {'reached' if url else 'started'} in {started - begun:.1f} s,"
            f" migrated in {time.monotonic() - started:.1f} s"
        )
        yield conninfo


@contextmanager
def _throwaway() -> Generator[str]:
    with throwaway_directory("pgjq-demo-") as directory, ExitStack() as stack:
        with _signals_deferred():
            server = stack.enter_context(EmbeddedServer.start(directory))
        yield server.conninfo


@contextmanager
def _signals_deferred() -> Generator[None]:
    """Defer signals, so that a server is either not started yet or known and stopped."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
