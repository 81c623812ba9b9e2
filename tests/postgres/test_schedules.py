"""Schedules on PostgreSQL: created in SQL, by roles, and many at once."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.testing.clock import ManualClock, PostgresClock
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


def test_ticks_of_one_batch_come_out_as_each_by_itself(harness: StorageHarness) -> None:
    clock = ManualClock()
    with closing(pgjq.MemoryStorage(clock=clock)) as storage:
        single = StorageHarness(storage, clock, "sync", lambda: storage)
        facts = [_tick_a_mixed_batch(each) for each in (harness, single)]
        single.close()
    assert facts[0] == facts[1]
    assert facts[0]["strict a"][0][0] == facts[0]["no letters"][0][0] == "refused"
    assert [facts[0][f"narrow {name}"][0][0] for name in "ab"] == ["made", "refused"]
    assert [facts[0][f"{name}"][0][0] for name in ("plain a", "plain b", "taken", "late", "own")] == [
        "made",
        "made",
        "refused",
        "made",
        "made",
    ]


def _tick_a_mixed_batch(harness: StorageHarness) -> dict[str, Any]:
    """Let schedules of several kinds and queues run first at once; return what each came to."""
    client = harness.client
    for name, policy in (("strict", "key_strict_fifo"), ("narrow", "exclusive"), ("letters", "standard")):
        client.create_queue(name, policy=policy)  # type: ignore[arg-type]
    made: dict[str, tuple[str, dict[str, Any]]] = {
        "plain a": ("imports", {}),
        "plain b": ("imports", {"overlap": "skip"}),
        "taken": ("imports", {}),
        "late": ("imports", {"jitter": 600}),
        "own": ("imports", {"priority": 7, "max_attempts": 9, "headers": {"a": "b"}, "payload": {"task": "t"}}),
        "narrow a": ("narrow", {}),
        "narrow b": ("narrow", {}),
        "strict a": ("strict", {}),
        "strict b": ("strict", {"singleton_key": "k"}),
        "letters": ("letters", {"dead_letter": "narrow"}),
        "no letters": ("letters", {"dead_letter": "missing"}),
    }
    for name, (queue, options) in made.items():
        client.create_schedule(name, queue, every=60, start_at=harness.now + timedelta(seconds=60), **options)
    client.enqueue("imports", "taken@2026-01-01T00:01:00Z", None)
    with harness.worker():
        harness.advance(60)
        wait_until(lambda: all(client.get_schedule_ticks(name) for name in made))
    found = {job.id: job for queue in ("imports", "narrow", "strict", "letters") for job in client.find_jobs(queue)}
    return {name: _come_to(client, name, found) for name in made}


def _come_to(client: pgjq.Client, name: str, found: dict[str, Any]) -> Any:
    (tick,), info = client.get_schedule_ticks(name), client.get_schedule(name)
    job = found.get(f"{name}@2026-01-01T00:01:00Z")
    settings = job and (job.priority, job.max_attempts, job.run_at, job.singleton_key, job.headers, job.task)
    return tick[2:4], info.next_run_at, info.last_run_at, info.last_job_id, settings


def test_a_locked_queue_delays_its_own_schedules_only(harness: StorageHarness, database: str) -> None:
    for queue in ("locked", "free"):
        for n in range(3):
            harness.client.create_schedule(f"{queue} {n}", queue, every=60, start_at=harness.now)
    harness.client.create_queue("locked")
    with psycopg.connect(database) as sql:
        sql.execute("select pg_advisory_xact_lock(hashtext('pgjq.queue'), hashtext('locked'))")
        sql.execute("select from pgjq.queue where name = 'locked' for update")
        with harness.worker():
            for n in range(3):
                assert harness.outcomes(f"free {n}", 1) == ["made"]
            assert not harness.client.get_schedule_ticks("locked 0")
            sql.rollback()
            for n in range(3):
                assert harness.outcomes(f"locked {n}", 1) == ["made"]


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
