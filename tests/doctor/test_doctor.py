"""Every finding of the doctor, planted for real; and a healthy storage without any."""

from __future__ import annotations

import asyncio
import json
import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from click.testing import CliRunner
from psycopg.conninfo import make_conninfo

import pgjq
from pgjq.blocking import drive
from pgjq.cli import main
from pgjq.doctor import Finding, Thresholds, examine
from pgjq.outcome import Failed, Failing
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration
from pgjq.testing.clock import PostgresClock
from tests.pgbouncer import pgbouncer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

CHECKS = {
    "connection", "versions", "schema", "clock", "listen", "pooler", "leader", "workers", "queues", "tasks", "stalled",
    "blocked", "failures", "snapshot", "vacuum", "bloat", "indexes", "connections", "roles",
}  # fmt: skip


def diagnose(storage: Any, **thresholds: Any) -> dict[str, Finding]:
    """Return the worst finding of each check."""

    async def examining() -> list[Finding]:
        try:
            return await examine(storage, Thresholds(**thresholds))
        finally:
            await storage.operations("async").close()

    order = {"ok": 0, "warning": 1, "error": 2}
    found = sorted(asyncio.run(examining()), key=lambda finding: order[finding.level])
    for finding in found:
        assert finding.level == "ok" or finding.advice, finding
    return {finding.check: finding for finding in found}


@contextmanager
def changed(conninfo: str, statement: str, back: str) -> Iterator[None]:
    """Change the database for a while."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(statement)
        try:
            yield
        finally:
            connection.execute(back)


@pytest.fixture(params=["memory", "file", "redis", "postgres"])
def storage(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param in ("redis", "postgres"):
        yield request.getfixturevalue({"redis": "redis_storage"}.get(request.param, request.param))
        return
    memory, directory = pgjq.MemoryStorage, request.getfixturevalue("tmp_path")
    made: Any = memory() if request.param == "memory" else pgjq.FileStorage(directory / "jobs")
    yield made
    made.close()


def serve(storage: Any, *queues: str) -> None:
    drive(storage.operations("sync").worker_seen(Registration("one", "worker-1", queues, 10.0)))


def test_a_healthy_storage_has_no_finding(storage: Any) -> None:
    pgjq.Client(storage).enqueue("mail", "1", {})
    serve(storage, "mail")
    found = diagnose(storage)
    expected = {finding.check for finding in found.values() if finding.level != "ok"}
    assert expected <= {"leader"}  # A record of a worker leads nothing.
    if isinstance(storage, pgjq.PostgresStorage):
        assert found.keys() == CHECKS
    else:
        assert {"connection", "workers", "queues", "stalled", "blocked"} <= found.keys()


def test_a_queue_without_a_worker(storage: Any) -> None:
    pgjq.Client(storage).enqueue("mail", "1", {})
    found = diagnose(storage)["queues"]
    assert found.level == "error"
    assert found.message == "no worker serves queue mail, and 1 job waits"
    assert "pgjq worker" in found.advice


def test_many_jobs_and_many_queues_without_a_worker(storage: Any) -> None:
    client = pgjq.Client(storage)
    client.enqueue_many("a", [(None, n) for n in range(150)])
    for number in range(12):
        client.enqueue(f"b{number:02}", "1", {})
    found = [f for f in asyncio.run(_all(storage)) if f.check == "queues"]
    is_counted = not isinstance(storage, pgjq.PostgresStorage)
    waiting = "about 150" if is_counted else "at least 100"
    assert found[0].message == f"no worker serves queue a, and {waiting} jobs wait"
    assert [f.message for f in found[10:]] == ["3 more findings about queues"]
    assert {f.level for f in found} == {"error"}


def test_an_old_failure_behind_many_later_endings_is_found(database: str, postgres: pgjq.PostgresStorage) -> None:
    ops: Any = postgres.operations("sync")
    pgjq.Client(postgres).enqueue("mail", "broken", {})
    (job,) = drive(ops.claim(["mail"], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Failed(pgjq.JobError("ValueError", "no")))]))
    pgjq.Client(postgres).enqueue_many("mail", [(f"{n}", n) for n in range(30_000)])
    with psycopg.connect(database) as connection:
        connection.execute(
            "with gone as (delete from pgjq.job returning seq, queue_id) insert into pgjq.done (seq, finished_at,"
            " expires_at, started_at, queue_id, lease, delete_after, rank, attempts, max_attempts, stalled, state)"
            " select seq, now(), now() + interval '1 day', now(), queue_id, 1, 0, 0, 1, 3, 0, 3 from gone"
        )
    assert "1 job of mail failed with ValueError" in diagnose(postgres)["failures"].message


def test_a_job_that_no_reaper_takes_back(storage: Any) -> None:
    pgjq.Client(storage).enqueue("mail", "1", {})
    policy = pgjq.LeasePolicy(lease=0.5, heartbeat=0.1)
    drive(storage.operations("sync").claim(["mail"], worker="worker-1", limit=1, policy=policy))
    while True:  # The lease ends by the storage's clock.
        found = diagnose(storage, overdue=0.0)["stalled"]
        if found.level == "error":
            break
    assert "1 of mail" in found.message


def test_a_handler_that_fails(storage: Any) -> None:
    error = pgjq.JobError("ValueError", "no order 7", 'Traceback\n  File "/srv/mail.py", line 12, in send\nValueError')
    ops = storage.operations("sync")
    for number, outcome in enumerate((Failed(error), Failing(error, 600.0))):
        pgjq.Client(storage).enqueue("mail", str(number), {})
        (job,) = drive(ops.claim(["mail"], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
        drive(ops.settle([Settlement(job.lease, outcome)]))
    found = diagnose(storage)["failures"]
    assert found.level == "warning"
    expected = "2 jobs of mail failed with ValueError at mail.py:12 in send: no order 7; 1 will be tried again"
    assert found.message == expected
    assert "pgjq status mail 1 shows the traceback" in found.advice
    assert diagnose(storage, failure_age=0.0)["failures"].message.startswith("1 job of mail")


def test_a_key_that_a_failed_job_blocks(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("orders", policy="key_strict_fifo")
    for number in ("1", "2"):
        client.enqueue("orders", number, {}, singleton_key="customer-7")
    ops: Any = postgres.operations("sync")
    (job,) = drive(ops.claim(["orders"], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Failed(pgjq.JobError("ValueError", "no")))]))
    found = diagnose(postgres)["blocked"]
    assert found.level == "error"
    assert "key customer-7 of queue orders is blocked by job 1, which is failed" in found.message


def test_paused_dead_and_old_queues(database: str, postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("dead")
    client.create_queue("mail", dead_letter="dead")
    client.enqueue("mail", "1", {})
    client.enqueue("dead", "1", {})
    client.pause_queue("mail")
    serve(postgres, "mail")
    texts = [f.message for f in asyncio.run(_all(postgres)) if f.check == "queues"]
    assert texts == ["1 job waits as dead letters in queue dead", "queue mail is paused, and 1 job waits"]
    client.resume_queue("mail")
    client.delete_job("dead", "1")
    with changed(database, "update pgjq.job set run_at = run_at - interval '1 hour'", "select"):
        assert "has been ready for 60 minutes" in diagnose(postgres)["queues"].message
    assert diagnose(postgres, ready_age=7200)["queues"].level == "ok"


async def _all(storage: Any) -> list[Finding]:
    try:
        return await examine(storage)
    finally:
        await storage.operations("async").close()


def test_a_silent_worker(database: str, postgres: pgjq.PostgresStorage) -> None:
    serve(postgres, "mail")
    with changed(database, "update pgjq.registration set last_seen = last_seen - interval '45 seconds'", "select"):
        silent = re.search(r"worker-1 for (\d+) s", diagnose(postgres)["workers"].message)
        assert silent is not None
        assert int(silent[1]) >= 45
    assert diagnose(postgres, silent_heartbeats=6)["workers"].level == "ok"


def test_a_silent_worker_of_other_storages(tmp_path: Path) -> None:
    clock = pgjq.testing.ManualClock()
    storage = pgjq.FileStorage(tmp_path / "jobs", clock=clock)
    serve(storage, "mail")
    clock.advance(31)
    assert diagnose(storage)["workers"].level == "warning"
    storage.close()


def test_a_task_that_workers_do_not_know(postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "1", {"task": "nonesuch"})
    queue = pgjq.Queue("mail", storage=postgres)
    queue.task(_known)
    with queue:
        while pgjq.Client(postgres).get_status("mail", "1").run_at is None or diagnose(postgres)["tasks"].level == "ok":
            pass
    found = diagnose(postgres)["tasks"]
    assert "task nonesuch in queue mail back" in found.message


def _known() -> None:
    pass


def test_a_leader_is_missing_while_workers_run(postgres: pgjq.PostgresStorage) -> None:
    serve(postgres, "mail")
    found = diagnose(postgres)["leader"]
    assert (found.level, found.message) == ("warning", "1 worker run, and none of them leads the maintenance")


def test_clocks_that_differ(database: str, postgres: pgjq.PostgresStorage) -> None:
    clock = PostgresClock(database)
    try:
        assert diagnose(postgres)["clock"].level == "warning"
    finally:
        clock.restore()
    assert diagnose(postgres)["clock"].level == "ok"


def test_an_old_snapshot_and_its_holder(database: str, postgres: pgjq.PostgresStorage) -> None:
    with psycopg.connect(database, application_name="the report") as holder:
        holder.execute("set transaction isolation level repeatable read")
        holder.execute("select")
        found = diagnose(postgres, snapshot_age=0.0)["snapshot"]
        pid = holder.info.backend_pid
        assert found.message.startswith(f"session {pid} (idle in transaction) of login ")
        assert "the report" in found.message
        assert f"pg_terminate_backend({pid})" in found.advice
        assert diagnose(postgres)["snapshot"].level == "ok"


def test_vacuum_and_bloat(own_database: str) -> None:
    storage = pgjq.PostgresStorage(own_database)
    job_table = "alter table pgjq.job_default"
    with changed(own_database, f"{job_table} set (autovacuum_enabled = false)", "select"):
        found = diagnose(storage)["vacuum"]
        assert (found.level, found.message) == ("error", "autovacuum is off for job_default")
        client = pgjq.Client(storage)
        client.enqueue_many("mail", [(str(number), {}) for number in range(100)])
        for number in range(100):
            client.delete_job("mail", str(number))
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute("select pg_stat_force_next_flush()")
        connection.execute(f"{job_table} reset (autovacuum_enabled)")
        connection.execute(f"{job_table} set (autovacuum_vacuum_threshold = 1000000)")
    while (found := diagnose(storage, dead_rows=50, bloat=1))["vacuum"].level == "ok":
        pass  # Statistics of tables arrive with a delay.
    assert "dead rows in job_default, vacuumed never" in found["vacuum"].message
    assert found["bloat"].level == "warning"
    assert "job_default takes" in found["bloat"].message
    storage.close()


def test_missing_and_invalid_indexes(own_database: str) -> None:
    storage = pgjq.PostgresStorage(own_database)
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute("drop index pgjq.job_failing")
        assert diagnose(storage)["indexes"].message == "missing: job_failing"
        connection.execute("create index job_failing on only pgjq.job (run_at) where state - 2 = 0")
        assert diagnose(storage)["indexes"].message == "invalid: job_failing"
    storage.close()


def test_connections_and_versions(postgres: pgjq.PostgresStorage) -> None:
    found = diagnose(postgres, connections=0.0)["connections"]
    assert found.level == "warning"
    assert "connections are in use" in found.message


def test_a_schema_that_is_missing_or_newer(empty_database: str, own_database: str) -> None:
    storage = pgjq.PostgresStorage(empty_database)
    found = diagnose(storage)
    assert (found["connection"].level, found["schema"].level) == ("ok", "error")
    storage.close()
    for version, level, advice in ((0, "error", "migrate"), (2, "warning", "Upgrade"), (99, "error", "Upgrade")):
        define = f"create or replace function pgjq.schema_version() returns integer language sql return {version}"
        with psycopg.connect(own_database, autocommit=True) as connection:
            connection.execute(define.encode())
        storage = pgjq.PostgresStorage(own_database)
        schema = diagnose(storage)["schema"]
        assert f"version {version}" in schema.message
        assert (schema.level, advice in schema.advice) == (level, True), schema
        storage.close()


def test_a_transaction_pooler(database: str, tmp_path: Path) -> None:
    with pgbouncer(database, tmp_path) as conninfo:
        storage = pgjq.PostgresStorage(conninfo)
        found = diagnose(storage, listen_timeout=0.5)
        storage.close()
    assert (found["pooler"].level, found["listen"].level) == ("warning", "warning")
    assert "direct connection" in found["pooler"].advice


def test_roles(own_database: str) -> None:
    pgjq.migrate(own_database, roles=True)
    name = "doctor_" + own_database[-8:].replace("=", "").replace(" ", "").replace("-", "")
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute(f"create role {name} login in role pgjq_monitor".encode())
        try:
            monitor = pgjq.PostgresStorage(make_conninfo(own_database, user=name))
            found = diagnose(monitor)
            assert found["roles"].message == f"login {name} is in pgjq_monitor"
            assert {f.level for f in found.values()} == {"ok"}, found
            connection.execute(f"revoke pgjq_monitor from {name}".encode())
            connection.execute(f"grant pgjq_producer to {name}".encode())
            monitor.close()
            producer = pgjq.PostgresStorage(make_conninfo(own_database, user=name))
            assert "docs/roles.md" in diagnose(producer)["connection"].advice
            producer.close()
            connection.execute("grant execute on function pgjq.claim to public")
            owner = pgjq.PostgresStorage(own_database)
            assert diagnose(owner)["roles"].message == "every login may call functions of pgjq: claim"
            owner.close()
        finally:
            connection.execute(f"drop role {name}".encode())


def run(*arguments: str, url: str) -> Any:
    return CliRunner().invoke(main, ["doctor", *arguments], env={"PGJQ_URL": url})


def test_the_command_and_its_exit_codes(database: str) -> None:
    healthy = run("--json", url=database)
    assert healthy.exit_code == 0, healthy.output
    assert {tuple(finding) for finding in json.loads(healthy.stdout)} == {("check", "level", "message", "advice")}
    warned = run("--connections", "0", url=database)
    assert warned.exit_code == 1
    assert "-> " in warned.stdout
    unreachable = run("--json", url="postgresql://127.0.0.1:1/none")
    assert unreachable.exit_code == 2
    ((finding),) = json.loads(unreachable.stdout)
    assert (finding["check"], finding["level"]) == ("connection", "error")
    assert run("--json", url="redis://127.0.0.1:1/0").exit_code == 2
