"""SQLAlchemy's URLs, the usual form of DATABASE_URL, are taken wherever pgjq takes a connection string."""

from __future__ import annotations

from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy.engine import URL

import pgjq
from pgjq.migrate import downgrade, status
from pgjq.testing.clock import PostgresClock
from tests.cli.run_command import answer, complaint, run
from tests.request_response.conftest import serving

DRIVERS = ["postgresql+psycopg", "postgresql+asyncpg", "postgresql+psycopg2", "postgres+asyncpg", "postgres"]
every_driver = pytest.mark.parametrize("driver", DRIVERS)


def url_of(conninfo: str, driver: str, **query: str) -> str:
    """Write a connection string as SQLAlchemy does."""
    given: dict[str, Any] = conninfo_to_dict(conninfo)
    place = {name: given[name] for name in ("host", "port") if name in given}
    url = URL.create(driver, given.get("user"), given.get("password"), database=given["dbname"], query=place | query)
    return url.render_as_string(hide_password=False)


@every_driver
def test_a_storage_opens_listens_and_leads(database: str, driver: str) -> None:
    storage = pgjq.open_storage(url_of(database, driver))
    with serving(storage, lambda job: job.payload * 2) as queue, pgjq.Reaper(storage=storage):
        assert queue.enqueue_and_wait("a", 21, timeout=60) == 42
    storage.close()


def test_parameters_of_the_url_reach_the_connection(database: str) -> None:
    url = url_of(database, "postgresql+asyncpg", target_session_attrs="standby", statement_cache_size="0")
    with (
        pgjq.Client(pgjq.PostgresStorage(url)) as client,
        pytest.raises(pgjq.StorageUnavailableError, match="hot standby"),
    ):
        client.enqueue("q", "a", 1)


@every_driver
def test_a_database_is_migrated(empty_database: str, driver: str) -> None:
    url = url_of(empty_database, driver)
    pgjq.migrate(url)
    assert status(url).current == status(url).head
    PostgresClock(url).restore()
    downgrade(url)
    assert status(url).current is None


@every_driver
def test_the_command_line_takes_them(empty_database: str, driver: str) -> None:
    url = url_of(empty_database, driver)
    assert run("migrate", "--url", url, url=None).exit_code == 0
    assert answer("enqueue", "q", "1", "--id", "a", url=url)["status"] == "queued"
    assert answer("status", "q", "a", url=url)["state"] == "queued"


@pytest.mark.parametrize("command", [["status", "q", "a"], ["migrate", "status"], ["pipeline", "run", "--lake", "x"]])
def test_the_command_line_refuses_the_others_without_their_password(command: list[str]) -> None:
    said = complaint(*command, url="postgresql+asyncpg://me:zecret@localhost/shop?no_such=1", code=2)
    assert "unknown parameter 'no_such'" in said
    assert "zecret" not in said
