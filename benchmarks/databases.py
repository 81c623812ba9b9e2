"""The server that everything is measured on, and databases of one's own in it.

The server is PostgreSQL with its stock settings, fsync and synchronous_commit included: what is faster without them is
not a job queue. It lives in a temporary directory and goes away with it.
"""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, cast

import psycopg
from psycopg import sql

import pgjq
from pgjq.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Generator

STATEMENTS = Path(__file__).parent / "sql"


@contextmanager
def temporary_server() -> Generator[EmbeddedServer]:
    """Start a server that nobody else uses."""
    with (
        tempfile.TemporaryDirectory(prefix="pgjq-bench-") as directory,
        EmbeddedServer.start(Path(directory)) as server,
    ):
        yield server


@contextmanager
def empty_database(server: EmbeddedServer, name: str) -> Generator[str]:
    """Make a database without a schema, and drop it afterwards: its checkpoints are nobody else's business."""
    _administer(server, sql.SQL("create database {}").format(sql.Identifier(name)))
    try:
        yield server.conninfo_for(name)
    finally:
        _administer(server, sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@contextmanager
def migrated_database(server: EmbeddedServer, name: str) -> Generator[str]:
    """Make a database with pgjq's schema."""
    with empty_database(server, name) as conninfo:
        pgjq.migrate(conninfo)
        yield conninfo


@contextmanager
def opened(conninfo: str) -> Generator[pgjq.PostgresStorage]:
    """Open a storage with one connection, as the contenders have one."""
    storage = pgjq.PostgresStorage(conninfo, min_size=1, max_size=1)
    try:
        yield storage
    finally:
        storage.close()


def connect(conninfo: str) -> psycopg.Connection[Any]:
    """Open a connection that commits each statement."""
    return psycopg.connect(conninfo, autocommit=True)


def statement(name: str) -> LiteralString:
    """Read a statement of `benchmarks/sql`. Files of this repository are as literal as a string can be."""
    return cast("LiteralString", (STATEMENTS / f"{name}.sql").read_text(encoding="utf-8"))


def run_statement(conninfo: str, name: str, parameters: dict[str, Any] | None = None) -> None:
    """Run a statement of `benchmarks/sql`."""
    with connect(conninfo) as connection:
        connection.execute(statement(name), parameters)


def _administer(server: EmbeddedServer, command: sql.Composed) -> None:
    with connect(server.conninfo) as connection:
        connection.execute(command)
