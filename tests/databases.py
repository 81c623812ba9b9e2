"""PostgreSQL for the tests: a server, a template with pgjq's schema, and databases that are cloned from it.

The server is the embedded one, or the one that PGJQ_TEST_URL names. pytest-postgresql makes the databases, and drops
them. Each process migrates one template, and clones one database from it that most tests use: between tests its rows
go, in one round trip, which takes a millisecond where a clone takes fifty. Tests that need a database to themselves get
a clone, or an empty one.
"""

from __future__ import annotations

import functools
import os
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from pytest_postgresql import factories
from pytest_postgresql.janitor import DatabaseJanitor

import pgjq
from pgjq.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_postgresql.executors import NoopExecutor

ROOT = Path(__file__).parents[1]
CLEAN = b"".join((ROOT / path).read_bytes() for path in ("tests/clean.sql", "sql/schema/delete_all.sql"))
# Durability is PostgreSQL's own business and is not what these tests look at; without fsync they take half the time.
FAST = {"fsync": "off", "max_connections": "200", "log_min_messages": "fatal"}


@dataclass(frozen=True)
class Address:
    """A server as pytest-postgresql wants it described. Its host may be the directory of a unix socket."""

    host: str
    port: int
    user: str
    password: str | None
    maintenance_dbname: str
    options: str = ""
    template_dbname: str | None = None

    @classmethod
    @functools.cache
    def of(cls, conninfo: str) -> Address:
        """Connect once, because a connection string may leave most of it to libpq."""
        with psycopg.connect(conninfo) as connection:
            info = connection.info
            return cls(info.host, info.port, info.user, info.password or None, info.dbname)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A connection string for a superuser of a PostgreSQL that is ours to fill."""
    if url := os.environ.get("PGJQ_TEST_URL"):
        yield url
        return
    try:
        with EmbeddedServer.start(tmp_path_factory.mktemp("postgres"), settings=FAST) as embedded:
            yield embedded.conninfo
    except pgjq.PgjqError as error:
        pytest.fail(f"the tests need a PostgreSQL, and none could be started: {error}", pytrace=False)


@pytest.fixture(scope="session")
def server_address(server: str) -> Address:
    """The same server, for pytest-postgresql."""
    return Address.of(server)


def migrate(*, host: str, port: int, user: str, dbname: str, password: str | None, autocommit: bool) -> None:
    """Load the schema into a template, as pytest-postgresql calls its loaders."""
    del autocommit
    pgjq.migrate(make_conninfo(host=host, port=port, user=user, dbname=dbname, password=password))


# The name is random, so that runs beside this one may use the same server.
template = factories.postgresql_noproc(dbname=f"pgjq_{uuid4().hex}", depends_on="server_address", load=[migrate])


@contextmanager
def new_database(server: str, template: NoopExecutor | None = None, *, encoding: str | None = None) -> Generator[str]:
    """Make a database, empty or cloned from the template, and drop it in the end, with all connections to it.

    One of another encoding is empty, and has to be made by a statement of its own.
    """
    if encoding is not None:
        name = f"pgjq_{uuid4().hex}"
        with psycopg.connect(server, autocommit=True) as connection:
            create = sql.SQL("create database {} encoding {} template template0 lc_collate 'C' lc_ctype 'C'")
            connection.execute(create.format(sql.Identifier(name), encoding))
            try:
                yield make_conninfo(server, dbname=name)
            finally:
                connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
        return
    address, name = Address.of(server), f"pgjq_{uuid4().hex}"
    with DatabaseJanitor(
        user=address.user,
        host=address.host,
        port=address.port,
        password=address.password,
        dbname=name,
        template_dbname=template and template.template_dbname,
        maintenance_dbname=address.maintenance_dbname,
    ):
        yield make_conninfo(server, dbname=name)


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    """A database of the test's own, with no schema in it."""
    with new_database(server) as conninfo:
        yield conninfo


@pytest.fixture
def own_database(server: str, template: NoopExecutor) -> Iterator[str]:
    """A database of the test's own, with the schema in it."""
    with new_database(server, template) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def migrated(server: str, template: NoopExecutor) -> Iterator[str]:
    """A database for the whole run, with the schema in it."""
    with new_database(server, template) as conninfo:
        yield conninfo


@pytest.fixture
def database(migrated: str) -> Iterator[str]:
    """The migrated database, without a row, and with the clock where it belongs."""
    yield migrated
    with psycopg.connect(migrated, autocommit=True) as connection:
        connection.execute(CLEAN)


@pytest.fixture
def postgres(database: str) -> Iterator[pgjq.PostgresStorage]:
    """A storage on that database."""
    storage = pgjq.PostgresStorage(database)
    yield storage
    storage.close()
