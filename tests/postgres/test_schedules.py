"""Schedules on PostgreSQL: created in SQL, by roles, and many at once."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import psycopg
import pytest

import pgjq
from pgjq.testing.clock import PostgresClock
from tests.schedules.conftest import StorageHarness, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def harness(database: str) -> Iterator[StorageHarness]:
    clock = PostgresClock(database)
    harness = StorageHarness(pgjq.PostgresStorage(database), clock, "sync", lambda: pgjq.PostgresStorage(database))
    yield harness
    harness.close()
    clock.restore()


def test_sql_creates_a_schedule_that_the_next_worker_plans(harness: StorageHarness, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("select pgjq.create_schedule('s', 'imports', '{\"a\": 1}', '0 * * * *', null, 'Europe/Berlin')")
        sql.execute("select pgjq.create_schedule('wrong', 'imports', cron => 'every day')")
        sql.execute("select pgjq.create_schedule('mars', 'imports', every => 60, timezone => 'Mars/Olympus')")
        sql.execute("select pgjq.create_schedule('odd', 'imports', every => 60, job_options => '{\"colour\": 1}')")
        with pytest.raises(psycopg.errors.UniqueViolation, match="exists"):
            sql.execute("select pgjq.create_schedule('s', 'imports', every => 60)")
        for bad in ("every => 0.1", "cron => '* * * * *', every => 5", "every => 60, missed => 'no'", "every => 'NaN'"):
            with pytest.raises(psycopg.errors.CheckViolation):
                sql.execute(f"select pgjq.create_schedule('t', 'imports', {bad})")
        with harness.worker():
            wait_until(lambda: harness.client.get_schedule("s").next_run_at is not None)
            wait_until(lambda: all(harness.client.get_schedule(n).error for n in ("wrong", "mars", "odd")))
            harness.advance(3600)
            assert harness.outcomes("s", 1) == ["made"]
            assert [tick.outcome for tick in harness.client.get_schedule_ticks("wrong")] == ["invalid"]
            assert sql.execute("select pgjq.pause_schedule('s')").fetchone() == (True,)
            harness.advance(3600)
            assert harness.outcomes("s", 2)[-1] == "paused"
            assert sql.execute("select pgjq.resume_schedule('s')").fetchone() == (True,)
            harness.advance(3600)
            assert harness.outcomes("s", 3)[-1] == "made"
        rows = sql.execute("select name, last_outcome, error is null from pgjq.schedules order by name").fetchall()
        assert rows[2:] == [("s", "made", True), ("wrong", "invalid", False)]
        assert sql.execute("select pgjq.delete_schedule('s')").fetchone() == (True,)
    job = harness.client.get_status("imports", "s@2026-01-01T01:00:00Z")
    assert job is not None
    harness.client.update_schedule("wrong", cron="@daily")  # Mended, it runs.
    assert harness.client.get_schedule("wrong").error is None


def test_a_thousand_ticks_are_made_in_batches_by_two_workers(harness: StorageHarness, database: str) -> None:
    with psycopg.connect(database, autocommit=True) as sql:
        sql.execute("select pgjq.create_schedule('s' || n, 'imports', every => 60) from generate_series(1, 1000) as n")
        with harness.worker(), closing(harness.reopen()) as other:
            second = pgjq.Queue("third", storage=other, block_timeout=300)
            second.execute(lambda job: job.id)
            with second:
                planned = "select count(next_run_at) from pgjq.schedule"
                wait_until(lambda: sql.execute(planned).fetchone() == (1000,))
                harness.advance(60)
                wait_until(lambda: sql.execute("select count(*) from pgjq.job").fetchone() == (1000,))
        assert sql.execute("select count(distinct id) from pgjq.body").fetchone() == (1000,)
        explained = sql.execute("explain select min(due_at) from pgjq.schedule where due_at is not null").fetchall()
        assert any("schedule_due" in line for (line,) in explained)


def test_a_worker_role_ticks_and_declares_and_only_an_admin_deletes(role_logins: dict[str, str]) -> None:
    with (
        closing(pgjq.PostgresStorage(role_logins["worker"])) as mine,
        closing(pgjq.PostgresStorage(role_logins["admin"])) as theirs,
    ):
        admin, queue = pgjq.Client(theirs), pgjq.Queue("other", storage=mine, block_timeout=300)
        admin.create_schedule("admin's", "imports", every=1)
        queue.schedule(every=3600, name="worker's")(queue.task(_nothing))
        with queue:
            wait_until(lambda: admin.get_schedule("admin's").last_job_id is not None)
        assert admin.get_schedule("worker's").payload["task"] == "_nothing"
        for role in ("worker", "producer", "monitor"):
            with closing(pgjq.PostgresStorage(role_logins[role])) as other, pytest.raises(pgjq.StorageError):
                pgjq.Client(other).delete_schedule("admin's")
        with closing(pgjq.PostgresStorage(role_logins["producer"])) as producer, pytest.raises(pgjq.StorageError):
            pgjq.Client(producer).create_schedule("producer's", "imports", every=1)
        with psycopg.connect(role_logins["monitor"]) as monitor:
            assert monitor.execute("select count(*) from pgjq.schedules").fetchone() == (2,)
        for name in ("admin's", "worker's"):
            admin.delete_schedule(name)


def _nothing() -> None:
    pass
