"""Migrated databases for tests: on the embedded server, your server, or pytest-postgresql's."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

from pgjq.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Generator

# Durability is not what tests look at; without fsync they take half the time.
FAST = {"fsync": "off", "log_min_messages": "fatal"}


def load_schema(
    *, host: str, port: int | str, user: str, dbname: str, password: str | None = None, **options: Any
) -> None:
    """Load pgjq's schema into a pytest-postgresql database: `postgresql_proc(load=[…])`."""
    del options
    migrate(make_conninfo(host=host, port=port, user=user, dbname=dbname, password=password))


@contextmanager
def template_database(server: str) -> Generator[str]:
    """Make a migrated database to clone others from; return its name."""
    with _database(server, None) as name:
        migrate(make_conninfo(server, dbname=name))
        yield name


@contextmanager
def cloned_database(server: str, template: str) -> Generator[str]:
    """Make a database like the template; return its connection string."""
    with _database(server, template) as name:
        yield make_conninfo(server, dbname=name)


@contextmanager
def _database(server: str, template: str | None) -> Generator[str]:
    name = sql.Identifier(plain := f"pgjq_test_{uuid4().hex}")
    create = sql.SQL("create database {}").format(name)
    if template is not None:
        create += sql.SQL(" template {}").format(sql.Identifier(template))
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(create)
    try:
        yield plain
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(sql.SQL("drop database {} with (force)").format(name))


def conninfo_of(connection: psycopg.Connection[Any]) -> str:
    """Return how to connect as a connection does, such as that of a pytest-postgresql fixture."""
    info = connection.info
    return make_conninfo(
        host=info.host, port=info.port, user=info.user, dbname=info.dbname, password=info.password or None
    )
