"""The pytest plugin: fixtures for a storage and its clock, wherever pgjq is installed.

So it imports nothing of pgjq before a test asks for one of its fixtures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from pgjq.storage.base import Storage
    from pgjq.testing.clock import MovableClock

pytest.register_assert_rewrite("pgjq.testing.worker")  # Before its import: a failing case shows its values.


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options."""
    group = parser.getgroup("pgjq")
    group.addoption(
        "--pgjq-storage",
        default="memory",
        metavar="STORAGE",
        help="Storage of the fixture pgjq_storage: memory, postgres, or the URL of a PostgreSQL server (default:"
        " memory).",
    )
    parser.addini(
        "pgjq_postgresql_fixture",
        "Fixture of pytest-postgresql whose database pgjq_storage uses with --pgjq-storage=postgres (default: a"
        " database on the embedded server).",
        default="",
    )


@pytest.fixture(scope="session")
def pgjq_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A connection string of a server for databases: the embedded one, or the option's."""
    from pgjq.embedded import EmbeddedServer
    from pgjq.testing.databases import FAST

    chosen = str(request.config.getoption("--pgjq-storage"))
    if chosen not in ("memory", "postgres"):
        yield chosen
        return
    with EmbeddedServer.start(tmp_path_factory.mktemp("pgjq"), settings=FAST) as server:
        yield server.conninfo


@pytest.fixture(scope="session")
def pgjq_template(pgjq_server: str) -> Iterator[str]:
    """The name of a migrated database, from which each test gets a clone."""
    from pgjq.testing.databases import template_database

    with template_database(pgjq_server) as name:
        yield name


@pytest.fixture
def pgjq_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """A connection string of a migrated database of the test's own."""
    from pgjq.migrate import migrate
    from pgjq.testing.databases import cloned_database, conninfo_of

    fixture: str = request.config.getini("pgjq_postgresql_fixture")
    if fixture:
        conninfo = conninfo_of(request.getfixturevalue(fixture))
        migrate(conninfo)
        yield conninfo
        return
    server: str = request.getfixturevalue("pgjq_server")
    with cloned_database(server, request.getfixturevalue("pgjq_template")) as conninfo:
        yield conninfo


@pytest.fixture
def pgjq_storage(request: pytest.FixtureRequest) -> Iterator[Storage]:
    """An empty storage in memory; a migrated database with --pgjq-storage=postgres."""
    from pgjq import MemoryStorage, PostgresStorage

    if request.config.getoption("--pgjq-storage") == "memory":
        from pgjq.testing.clock import ManualClock

        # The time runs by itself unless the test asks for a clock that stands still.
        storage = MemoryStorage(clock=ManualClock(_now()) if "pgjq_clock" in request.fixturenames else None)
    else:
        storage = PostgresStorage(request.getfixturevalue("pgjq_database"))
    yield storage
    storage.close()


@pytest.fixture
def pgjq_clock(pgjq_storage: Storage) -> Iterator[MovableClock]:
    """The clock of pgjq_storage, which only the test moves: `pgjq_clock.advance(hours=3)`."""
    from pgjq import PostgresStorage
    from pgjq.testing.clock import PostgresClock, clock_of

    if isinstance(pgjq_storage, PostgresStorage):
        clock = PostgresClock(pgjq_storage.conninfo, pgjq_storage.schema, _now())
        yield clock
        clock.restore()
        return
    found = clock_of(pgjq_storage)
    if found is None:
        pytest.fail("pgjq_clock must be an argument of the test or of a fixture that it names", pytrace=False)
    yield found


def _now() -> datetime:
    from datetime import UTC, datetime

    return datetime.now(UTC)
