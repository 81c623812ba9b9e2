"""A reap pass reads what is overdue and little else, however many jobs wait and run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq.storage.postgres.queries import Queries
from tests.databases import new_database

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_postgresql.executors import NoopExecutor
# One process runs them all: what is filled with jobs is filled once.
pytestmark = pytest.mark.xdist_group("reap_numbers")
QUERIES = Queries("pgjq")
STATEMENTS = Path(__file__).parents[2] / "benchmarks/sql"
FILL = (STATEMENTS / "fill.sql").read_bytes()
RUN = (STATEMENTS / "run.sql").read_bytes()
# A tenth of what the promise speaks of: pages read do not depend on it, and `benchmarks reap` has the whole million.
QUEUED = 100_000
PROCESSING = 10_000
BUFFERS = 200


@pytest.fixture(scope="module")
def busy(server: str, template: NoopExecutor) -> Iterator[psycopg.Connection[Any]]:
    """A long queue of which ten thousand jobs are running, renewed once, and nothing vacuumed since."""
    with new_database(server, template) as conninfo, psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute("alter table pgjq.job_default set (autovacuum_enabled = off)")
        connection.execute(FILL, {"queue": "q", "count": QUEUED + PROCESSING, "delay": 0, "priority": 0})
        connection.execute(RUN, {"count": PROCESSING, "lease": 3600})
        connection.execute("update pgjq.job set locked_until = locked_until + interval '1 s' where state = 1")
        yield connection


@pytest.mark.parametrize("statement", ["reap", "next_deadline"])
@pytest.mark.parametrize("stale_age", [0.0, 2700.0])
def test_a_pass_with_nothing_to_do_reads_less_than_two_hundred_pages(
    busy: psycopg.Connection[Any], statement: str, stale_age: float
) -> None:
    params = {"limit": 1000, "stale_age": stale_age} if statement == "reap" else {}
    explained(busy, statement, params)  # The first scan marks dead entries of the index; later scans skip them.
    assert pages(explained(busy, statement, params)) < BUFFERS


def test_a_pass_reads_as_many_pages_as_it_takes_jobs_and_not_as_there_are(busy: psycopg.Connection[Any]) -> None:
    with busy.transaction(force_rollback=True):
        busy.execute(
            "update pgjq.job set locked_until = pgjq.now() - interval '1 second'"
            " where seq in (select seq from pgjq.job where state = 1 order by seq limit 10)"
        )
        plan = explained(busy, "reap", {"limit": 1000, "stale_age": 0.0})
    assert plan["Actual Rows"] == 10
    assert pages(plan) < 10 * BUFFERS


def explained(connection: psycopg.Connection[Any], name: str, params: dict[str, Any]) -> dict[str, Any]:
    prefix = b"explain (format json, analyze, buffers) "
    row = connection.execute(prefix + QUERIES.psycopg(name), params, prepare=False).fetchone()
    assert row is not None
    return row[0][0]["Plan"]


def pages(plan: dict[str, Any]) -> int:
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
