"""The statements of the hot path walk the index they were written for, whatever the statistics say.

A queue is full one minute and empty the next, so statistics are always about another time. Each plan is looked at with
none, with those of an empty table, and with fresh ones. EXPLAIN does not look into functions: there the
rows that were read are counted, in a session that called them while the queue was empty, and in a new one.
"""

from __future__ import annotations

import re
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
import pytest

from pgjq.storage.postgres.queries import Queries, resources
from tests.databases import new_database
from tests.postgres.row_reads import fetched

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from pytest_postgresql.executors import NoopExecutor
# One process runs them all: what is filled with jobs is filled once.
pytestmark = pytest.mark.xdist_group("plans")
QUERIES = Queries("pgjq")
JOBS = 30_000
STATISTICS = ("never analysed", "analysed when empty", "analysed when full")
RUNNING = 500
QUEUE = 8  # The number of the first queue of a database.
LEASES = {"queue_ids": [QUEUE] * 200, "seqs": list(range(200)), "leases": [1] * 200}
SETTLE = {"states": None, "results": None, "errors": None, "delays": None, "outcomes": None}
# The first job of a session is released, claimed again and awaited; then there is none.
SETTLED = ("released", "awaited", "completed")
CLAIM = {
    "queues": "{q}",
    "worker": 1,
    "lease": 30.0,
    "expire": 900.0,
    "max_stalled": None,
    "requeue_exhausted": False,
    "claim_id": None,
    "after_ranks": None,
    "after_seqs": None,
}
HOT: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "heartbeat": (LEASES, {"j": "job_default_pkey"}),
    "next_deadline": ({}, {"j": "job_default_locked_until_idx"}),
    "get": ({"queue": "q", "ids": ["1"]}, {"b": "body_default_queue_id_id_idx"}),
}
PLANNER = re.compile("enable_|jit|plan_cache_mode")
PLAN_EVERY_CALL = {"plan_cache_mode=force_custom_plan"}
KEEP_ONE_PLAN = {"plan_cache_mode=force_generic_plan"}
WALK_INDEXES = {"enable_seqscan=off", "enable_hashjoin=off", "enable_sort=off", "jit=off"}
# Whole tables that are small for ever: a row for each queue, a row for each worker.
SMALL = {"queue", "worker", "registration"}


class Sessions(NamedTuple):
    """Two sessions of a database: one that has claimed and settled before the first job came, and a new one."""

    early: psycopg.Connection[Any]
    late: psycopg.Connection[Any]


@contextmanager
def filled(server: str, template: NoopExecutor, statistics: str) -> Generator[Sessions]:
    """A queue of many jobs, some of them running, some in the future, with statistics of some time or none."""
    with (
        new_database(server, template) as conninfo,
        psycopg.connect(conninfo, autocommit=True) as early,
        psycopg.connect(conninfo, autocommit=True) as late,
    ):
        begin(late, statistics)
        early.execute("select pgjq.enqueue_job('q', 'first', '1', null)")
        for outcome in SETTLED:
            early.execute("update pgjq.job set awaited = %s", [outcome == "awaited"])
            taken = early.execute(QUERIES.psycopg("claim"), CLAIM | {"limit": 1}).fetchall()
            early.execute(QUERIES.psycopg("settle"), settling(taken, outcome))
        for name in ("reap", "cancel", "delete", "retry", "retry_many"):
            params = {"queue": "q", "ids": "{}", "id": "none", "limit": 1, "stale_age": 0.0}
            early.execute(QUERIES.psycopg(name), params)
        fill(late, statistics)
        yield Sessions(early, late)


@pytest.fixture(scope="module")
def databases(server: str, template: NoopExecutor) -> Iterator[dict[str, Sessions]]:
    """Such a database for each kind of statistics."""
    with ExitStack() as stack:
        yield {statistics: stack.enter_context(filled(server, template, statistics)) for statistics in STATISTICS}


@pytest.fixture(params=STATISTICS)
def sessions(request: pytest.FixtureRequest, databases: dict[str, Sessions]) -> Sessions:
    return databases[request.param]


@pytest.fixture
def full(sessions: Sessions) -> psycopg.Connection[Any]:
    return sessions.late


@pytest.fixture
def early(sessions: Sessions) -> psycopg.Connection[Any]:
    return sessions.early


def begin(connection: psycopg.Connection[Any], statistics: str) -> None:
    """Settle the statistics before the first plan: a change to a table makes sessions forget their plans."""
    for table in ("job", "body", "done", "progress"):
        connection.execute(f"alter table pgjq.{table}_default set (autovacuum_enabled = off)")
    if statistics == "analysed when empty":
        connection.execute("vacuum analyze pgjq.job, pgjq.body, pgjq.done, pgjq.progress")


def fill(connection: psycopg.Connection[Any], statistics: str) -> None:
    connection.execute(
        "select pgjq.enqueue_jobs('q', array_agg(n::text), array_agg('1'::bytea)) from generate_series(1, %s) n", [JOBS]
    )
    connection.execute("update pgjq.job set ready = false, run_at = now() + '1 day', rank = -1 where seq % 10 = 0")
    connection.execute(QUERIES.psycopg("claim"), CLAIM | {"limit": RUNNING})
    connection.execute(
        "insert into pgjq.done select seq + 1000000, now(), now(), now(), now() + '1 day', 1, 8, 1, 1, 0, 0, 1, 3, 0, 3"
        " from pgjq.body where seq % 3 = 0"
    )
    if statistics == "analysed when full":
        connection.execute("analyze")


@pytest.mark.parametrize("name", HOT)
def test_a_hot_statement_walks_its_index(full: psycopg.Connection[Any], name: str) -> None:
    params, wanted = HOT[name]
    scans = [node for node in nodes(plan(full, name, params)) if "Relation Name" in node]
    used = {node["Alias"].removesuffix("_1"): node.get("Index Name") for node in scans}
    assert {alias: used.get(alias) or bitmap_index(full, name, params, alias) for alias in wanted} == wanted
    whole = {node["Relation Name"] for node in scans if node["Node Type"] == "Seq Scan"}
    assert whole <= SMALL | {"progress_default"}


@pytest.mark.parametrize("session", ["that saw the queue empty", "that is new"])
@pytest.mark.parametrize("batch", [1, 200])
@pytest.mark.parametrize("outcome", SETTLED)
def test_claiming_and_settling_read_what_they_take(
    full: psycopg.Connection[Any], early: psycopg.Connection[Any], session: str, batch: int, outcome: str
) -> None:
    connection = early if session == "that saw the queue empty" else full
    with connection.transaction(force_rollback=True):
        before = fetched(connection)
        taken = connection.execute(QUERIES.psycopg("claim"), CLAIM | {"limit": batch}).fetchall()
        if outcome == "awaited":
            connection.execute("update pgjq.job set awaited = true where seq = any(%s)", [[row[2] for row in taken]])
        connection.execute(QUERIES.psycopg("settle"), settling(taken, outcome))
        read = fetched(connection) - before
    assert len(taken) == batch
    # Each job, to claim, to mark and to settle it, and its body, to claim it and to notify; but of the others none.
    assert read <= 6 * batch


def settling(taken: list[tuple[Any, ...]], outcome: str = "completed") -> dict[str, Any]:
    columns = {"queue_ids": 1, "seqs": 2, "leases": 3}
    states = {"states": "{" + ",".join("2" for _ in taken) + "}"} if outcome == "released" else {}
    return SETTLE | states | {name: "{" + ",".join(str(row[n]) for row in taken) + "}" for name, n in columns.items()}


def test_promoting_reads_what_is_due(full: psycopg.Connection[Any]) -> None:
    with full.transaction(force_rollback=True):
        full.execute("update pgjq.job set run_at = now() - interval '1 s' where seq in (10, 20, 30)")
        before = fetched(full)
        full.execute("select pgjq.promote()")
        assert fetched(full) - before <= 10
        assert full.execute("select count(*) from pgjq.job where seq in (10, 20, 30) and ready").fetchone() == (3,)


@pytest.mark.parametrize("session", ["that saw the queue empty", "that is new"])
def test_reaping_reads_what_is_late(
    full: psycopg.Connection[Any], early: psycopg.Connection[Any], session: str
) -> None:
    connection = early if session == "that saw the queue empty" else full
    with connection.transaction(force_rollback=True):
        connection.execute("update pgjq.job set locked_until = now() - interval '1 s' where seq in (11, 12, 13)")
        before = fetched(connection)
        reaped = connection.execute(QUERIES.psycopg("reap"), {"limit": 500, "stale_age": 0.0}).fetchall()
        assert fetched(connection) - before <= 20
    assert len(reaped) == 3


@pytest.mark.parametrize("session", ["that saw the queue empty", "that is new"])
@pytest.mark.parametrize("name", ["cancel", "delete", "retry", "retry_many"])
def test_managing_a_job_reads_that_job(
    full: psycopg.Connection[Any], early: psycopg.Connection[Any], session: str, name: str
) -> None:
    connection = early if session == "that saw the queue empty" else full
    with connection.transaction(force_rollback=True):
        if name.startswith("retry"):
            connection.execute(QUERIES.psycopg("cancel"), {"queue": "q", "ids": "{9001}"})
        before = fetched(connection)
        done = connection.execute(QUERIES.psycopg(name), {"queue": "q", "ids": "{9001}", "id": "9001"}).fetchall()
        assert fetched(connection) - before <= 10
    assert len(done) == 1


@pytest.mark.parametrize("session", ["that saw the queue empty", "that is new"])
def test_finding_a_lost_claim_reads_what_runs(
    full: psycopg.Connection[Any], early: psycopg.Connection[Any], session: str
) -> None:
    connection = early if session == "that saw the queue empty" else full
    with connection.transaction(force_rollback=True):
        taken = connection.execute(QUERIES.psycopg("claim"), CLAIM | {"limit": 10, "claim_id": 7}).fetchall()
        before = fetched(connection)
        found = connection.execute(QUERIES.psycopg("find_claimed"), {"claim_id": 7}).fetchall()
        # Every job that runs, and the payloads of those that are found; but none that waits.
        assert fetched(connection) - before <= RUNNING + 4 * len(taken)
    assert sorted(row[2] for row in found) == sorted(row[2] for row in taken)


@pytest.mark.parametrize("session", ["that saw the queue empty", "that is new"])
def test_finding_lost_settlements_reads_their_jobs(
    full: psycopg.Connection[Any], early: psycopg.Connection[Any], session: str
) -> None:
    connection = early if session == "that saw the queue empty" else full
    with connection.transaction(force_rollback=True):
        taken = connection.execute(QUERIES.psycopg("claim"), CLAIM | {"limit": 100}).fetchall()
        params = settling(taken) | {"errors": None}
        connection.execute(QUERIES.psycopg("settle"), params)
        before = fetched(connection)
        found = connection.execute(QUERIES.psycopg("find_settled"), params).fetchall()
        assert fetched(connection) - before <= 4 * len(taken)
    assert len(found) == len(taken)


def test_pruning_reads_what_it_removes(full: psycopg.Connection[Any]) -> None:
    with full.transaction(force_rollback=True):
        full.execute("update pgjq.done set delete_at = now() - interval '1 s' where seq in (1000003, 1000006)")
        before = fetched(full)
        assert full.execute(QUERIES.psycopg("prune"), {"limit": 500}).fetchone() == (2, 0, 0)
        assert fetched(full) - before <= 10


@pytest.mark.parametrize("name", ["next_deadline"])
def test_a_hot_statement_reads_few_pages_of_a_long_queue(full: psycopg.Connection[Any], name: str) -> None:
    params = HOT[name][0] | ({"limit": 1} if "limit" in HOT[name][0] else {})
    with full.transaction(force_rollback=True):
        measured = plan(full, name, params, analyze=True)
    assert measured["Shared Hit Blocks"] + measured["Shared Read Blocks"] < 200


def plan(connection: psycopg.Connection[Any], name: str, params: dict[str, Any], *, analyze: bool = False) -> Any:
    prefix = b"explain (format json, analyze, buffers) " if analyze else b"explain (format json) "
    row = connection.execute(prefix + QUERIES.psycopg(name), params, prepare=False).fetchone()
    assert row is not None
    return row[0][0]["Plan"]


def nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", []):
        yield from nodes(child)


def bitmap_index(connection: psycopg.Connection[Any], name: str, params: dict[str, Any], alias: str) -> str | None:
    """The index below a bitmap heap scan."""
    for node in nodes(plan(connection, name, params)):
        if node.get("Alias", "").removesuffix("_1") == alias and node["Node Type"] == "Bitmap Heap Scan":
            return next(child["Index Name"] for child in nodes(node) if "Index Name" in child)
    return None


def test_planner_settings_come_from_one_list(database: str) -> None:
    """Each function walks indexes only, or has no settings; most plan every call, and some have one plan."""
    with psycopg.connect(database) as connection:
        found = connection.execute(
            "select proname, proconfig from pg_proc where pronamespace = 'pgjq'::regnamespace and proconfig is not null"
        ).fetchall()
    settings = {name: {setting for setting in config if PLANNER.match(setting)} for name, config in found}
    listed = {name: chosen for name, chosen in settings.items() if chosen}
    every_call = {name for name, chosen in listed.items() if chosen >= PLAN_EVERY_CALL}
    one_plan = {name for name, chosen in listed.items() if chosen >= KEEP_ONE_PLAN}
    others = {name for name, chosen in listed.items() if chosen - PLAN_EVERY_CALL - KEEP_ONE_PLAN != WALK_INDEXES}
    assert others == set()
    assert {"claim_planned", "promote", "reap", "prune_ended", "prune_waiting"} <= every_call < set(listed)
    assert one_plan == {"claim", "settle", "seconds_until_work"}


def test_a_retry_is_not_compiled(database: str) -> None:
    """It needs a sort, and a plan with a step that is turned off counted as very expensive up to PostgreSQL 17."""
    with psycopg.connect(database, autocommit=True) as connection:
        if connection.info.server_version >= 180000 or connection.execute("select pg_jit_available()").fetchone() != (
            True,
        ):
            pytest.skip("a PostgreSQL before 18 that compiles expressions is needed")
        assert not is_compiled(connection)
        connection.execute("alter function pgjq.retry_jobs reset jit")
        assert is_compiled(connection)
        connection.execute("alter function pgjq.retry_jobs set jit = off")


def is_compiled(connection: psycopg.Connection[Any]) -> bool:
    """Retry a job, and look at the plans of all statements inside of the function."""
    plans: list[str] = []
    connection.add_notice_handler(lambda notice: plans.append(notice.message_primary or ""))
    connection.execute("load 'auto_explain'")
    for setting in ("auto_explain.log_min_duration = 0", "auto_explain.log_nested_statements = on"):
        connection.execute(f"set {setting}")
    connection.execute("set client_min_messages = log")
    connection.execute(QUERIES.psycopg("retry"), {"queue": "q", "id": "none"})
    connection.execute("reset client_min_messages")
    assert any("pgjq" in plan for plan in plans)
    return any("JIT:" in plan for plan in plans)


def test_no_other_file_has_planner_settings() -> None:
    folder = resources("sql")
    files = [path for path in folder.glob("*/0001_*.sql") if re.search(r"enable_\w+|plan_cache_mode", path.read_text())]
    assert [path.name for path in files] == ["0001_planner_settings.sql"]
