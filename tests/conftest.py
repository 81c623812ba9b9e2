"""The servers that the tests talk to, and a clean database for each test.

They are started here unless PGJQ_TEST_URL and PGJQ_TEST_REDIS_URL name others. One database is migrated for the whole
run. Between tests its rows go, in one round trip: a millisecond, where a database of its own would cost sixty.
"""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import psycopg
import pytest
import redis
from psycopg import sql
from psycopg.conninfo import make_conninfo

import pgjq
from pgjq.embedded import EmbeddedServer
from tests.redis_server import RedisServer

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

pytest_plugins = ["tests.temporary"]
ROOT = Path(__file__).parents[1]
CLEAN = (Path(__file__).parent / "clean.sql").read_bytes()
# Durability is PostgreSQL's own business and is not what these tests look at; without fsync they take half the time.
FAST = {"fsync": "off", "max_connections": "200", "log_min_messages": "fatal"}


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


@contextmanager
def new_database(server: str) -> Generator[str]:
    """Make a database, and drop it in the end, whoever is still connected."""
    name = f"pgjq_{uuid4().hex}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
    yield make_conninfo(server, dbname=name)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def empty_database(server: str) -> Iterator[str]:
    """A database of one's own, with no schema in it."""
    with new_database(server) as conninfo:
        yield conninfo


@pytest.fixture(scope="session")
def migrated(server: str) -> Iterator[str]:
    """A database for the whole run, with the schema in it."""
    with new_database(server) as conninfo:
        pgjq.migrate(conninfo)
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


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Redis that is ours to fill."""
    if url := os.environ.get("PGJQ_TEST_REDIS_URL"):
        yield url
        return
    with RedisServer(tmp_path_factory.mktemp("redis")) as server:
        yield server.url


@pytest.fixture(scope="session")
def valkey_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Valkey."""
    with RedisServer(tmp_path_factory.mktemp("valkey"), make="valkey") as server:
        yield server.url


@pytest.fixture
def redis_storage(redis_url: str) -> Iterator[pgjq.RedisStorage]:
    """A storage on that Redis, with a prefix of its own."""
    with _empty_again(redis_url) as storage:
        yield storage


@pytest.fixture
def valkey_storage(valkey_url: str) -> Iterator[pgjq.RedisStorage]:
    """The same on that Valkey."""
    with _empty_again(valkey_url) as storage:
        yield storage


@contextmanager
def _empty_again(url: str) -> Generator[pgjq.RedisStorage]:
    storage = pgjq.RedisStorage(url, prefix=f"test-{uuid4().hex}")
    yield storage
    storage.close()
    with redis.Redis.from_url(url) as client:
        client.flushall()
