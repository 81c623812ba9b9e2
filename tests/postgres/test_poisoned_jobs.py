"""Rows that no statement can compute with: producers cannot make them, and one that is there stops nothing else."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as running
from hypothesis import strategies as st

import pgjq
from pgjq.blocking import drive
from pgjq.options import JobFilter
from pgjq.testing import PostgresClock
from tests.postgres.conftest import ByRole, execute

if TYPE_CHECKING:
    from collections.abc import Iterator

SHORT = pgjq.LeasePolicy(lease=10, heartbeat=None)
# What was written by hand, and which operation meets it.
POISON = {
    "a heartbeat below every double": ("options = '{\"heartbeat_seconds\": 1e-400}'", "claim"),
    "a heartbeat that is a word": ('options = \'{"heartbeat_seconds": "soon"}\'', "claim"),
    "an expiry above every time": ("options = '{\"expire_in_seconds\": 1e300}'", "claim"),
    "a delay below every double": ("options = '{\"retry_delay\": 1e-400}'", "reap"),
    "a backoff that is a number": ("options = '{\"retry_backoff\": 7}'", "reap"),
    "a retention below every double": ("options = '{\"retention_seconds\": 1e-400}'", "prune"),
    "a retention that is an object": ("options = '{\"retention_seconds\": {}}'", "prune"),
}
HOLDERS = ("heartbeat_seconds", "expire_in_seconds", "retention_seconds", "retry_delay", "delete_after_seconds")


def run(mode: str, storage: pgjq.PostgresStorage, method: str, *args: Any, **options: Any) -> Any:
    """Call an operation in one mode."""
    if mode == "sync":
        return drive(getattr(storage.operations("sync"), method)(*args, **options))

    async def call() -> Any:
        ops = storage.operations("async")
        try:
            return await getattr(ops, method)(*args, **options)
        finally:
            await ops.close()

    return asyncio.run(call())


def poison(storage: pgjq.PostgresStorage, change: str, table: str = "body") -> None:
    with psycopg.connect(storage.conninfo, autocommit=True) as connection:
        found = connection.execute("select seq from pgjq.body where id = 'bad'").fetchall()
        update = f"update pgjq.{table} set {change} where seq = any(%s)"  # noqa: S608
        connection.execute(update.encode(), [[seq for (seq,) in found]])


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize("what", POISON)
def test_a_poisoned_row_is_set_aside_as_failed_and_the_rest_goes_on(
    what: str, mode: str, postgres: pgjq.PostgresStorage, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    clock = PostgresClock(database)
    client = pgjq.Client(postgres)
    change, met_by = POISON[what]
    client.enqueue_many("q", [("bad", 1), ("good", 2)])
    client.enqueue("another", "good", 3)
    policy = SHORT

    def claim() -> list[str]:
        taken = run(mode, postgres, "claim", ["q", "another"], worker="w", limit=10, policy=policy)
        return [job.lease.id for job in taken]

    if met_by == "reap":
        assert claim() == ["bad", "good", "good"]
    poison(postgres, change)
    clock.advance(60)
    match met_by:
        case "claim":
            assert claim() == ["good", "good"]
        case "reap":
            reaped = run(mode, postgres, "reap")
            assert sorted((job.queue, job.id) for job in reaped) == [("another", "good"), ("q", "good")]
        case _:
            clock.advance(15 * 86400)
            assert run(mode, postgres, "prune") == 2
    status = client.get_status("q", "bad")
    assert status is not None
    assert status.state == "failed"
    assert status.error is not None
    assert status.error.type == "InvalidJob"
    assert "its row holds values out of bounds" in status.error.message
    assert "jobs failed because their rows hold values out of bounds" in caplog.text


def test_a_waiter_of_a_poisoned_job_is_told_that_it_failed(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    waiter = drive(postgres.operations("sync").result_waiter("q", "bad"))
    drive(waiter.enqueue(pgjq.options.Submission("bad", b"1", pgjq.options.DEFAULT_SETTINGS)))
    poison(postgres, 'options = \'{"heartbeat_seconds": "soon"}\'')
    assert run("sync", postgres, "claim", ["q"], worker="w", limit=10, policy=SHORT) == []
    answer = drive(waiter.answer(30.0))
    assert answer is not None
    assert answer.state == "failed"
    drive(waiter.close())
    assert client.get_status("q", "bad") is not None


def test_a_poisoned_job_of_a_key_lets_the_next_one_run(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("q", policy="singleton")
    client.enqueue("q", "bad", 1, singleton_key="k")
    client.enqueue("q", "good", 1, singleton_key="k")
    poison(postgres, 'options = \'{"expire_in_seconds": "soon"}\'')
    taken = run("sync", postgres, "claim", ["q"], worker="w", limit=10, policy=SHORT)
    assert [job.lease.id for job in taken] == ["good"]


@pytest.mark.parametrize("change", ["result_ttl = 'NaN'", "result_ttl = 1e300", "result_ttl = '-infinity'",
                                    "delete_after = 'infinity'"])  # fmt: skip
def test_a_record_kept_for_an_impossible_time_fails_no_settlement(change: str, postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.enqueue_many("q", [("bad", 1), ("good", 2)])
    taken = run("sync", postgres, "claim", ["q"], worker="w", limit=10, policy=SHORT)
    poison(postgres, change, "job")
    settled = run(
        "sync",
        postgres,
        "settle",
        [pgjq.storage.base.Settlement(job.lease, pgjq.outcome.Completed(b"1")) for job in taken],
    )
    assert [s.state for s in settled] == ["completed", "completed"]
    assert len(client.get_statuses("q", ["bad", "good"])) == 2


def test_options_of_the_wrong_kind_reach_no_handler(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.enqueue_many("q", [("bad", 1), ("good", 2)])
    poison(postgres, """options = '{"retry_delay": "soon", "retry_backoff": "yes", "newer": 1, "dead_letter": 5}'""")
    taken = run("sync", postgres, "claim", ["q"], worker="w", limit=10, policy=SHORT)
    assert [job.options for job in taken] == [pgjq.options.NO_OPTIONS] * 2


def test_a_failure_that_no_job_is_to_blame_for_is_raised(postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("q", "good", 1)
    impossible = pgjq.LeasePolicy(lease=10, heartbeat=None)
    object.__setattr__(impossible, "expire", 1e300)
    with pytest.raises(pgjq.StorageError, match="out of range"):
        run("sync", postgres, "claim", ["q"], worker="w", limit=1, policy=impossible)


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A session beside the storage's, for all examples of a test."""
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


numbers = st.one_of(
    st.sampled_from(
        ["1e-400", "1e-46", "1e-7", "0", "0.000001", "1", "10", "3155760000", "3155760001", "1e300", "1e400"]
    ),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.integers().map(str),
    st.sampled_from(['"NaN"', '"infinity"', '"-infinity"', '"soon"', "null", "true", "[]", "{}", '"1"']),
)
times = st.one_of(
    st.sampled_from(["infinity", "-infinity", "epoch", "294275-01-01", "4713-01-01 BC", "9999-01-01", "soon", "now"]),
    st.datetimes().map(lambda at: at.isoformat() + "+00"),
)
PLAIN = ["delay", "max_attempts", "priority", "result_ttl", "singleton_seconds"]


@st.composite
def some_settings(draw: st.DrawFn) -> str:
    """Write settings as a program might that calls the functions itself."""
    parts = [f'"{name}": {draw(numbers)}' for name in draw(st.sets(st.sampled_from(PLAIN), max_size=3))]
    if draw(st.booleans()):
        parts.append(f'"run_at": {json.dumps(draw(times))}')
    if draw(st.booleans()):
        names = draw(st.sets(st.sampled_from([*HOLDERS, "retry_delay_max", "retry_backoff"]), max_size=3))
        inner = ", ".join(f'"{name}": {draw(numbers)}' for name in names)
        parts.append(f'"options": {{{inner}}}')
    return "{" + ", ".join(parts) + "}"


@example('{"options": {"heartbeat_seconds": 1e-400}}', "enqueue_job")
@example('{"options": {"retry_delay": 1e-400}}', "enqueue_jobs")
@example('{"options": {"retention_seconds": 1e-400}}', "enqueue_jobs")
@example('{"run_at": "294275-01-01"}', "enqueue_job")
@example('{"delay": -2e11}', "enqueue_job")
@running(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(some_settings(), st.sampled_from(["enqueue_job", "enqueue_jobs", "own"]))
def test_what_the_functions_for_producers_accept_stops_nobody(
    postgres: pgjq.PostgresStorage, connection: psycopg.Connection[Any], text: str, function: str
) -> None:
    calls = {
        "enqueue_job": "select pgjq.enqueue_job('q', 'bad', '1', %s)",
        "enqueue_jobs": "select pgjq.enqueue_jobs('q', '{bad}', '{1}', %s)",
        "own": "select pgjq.enqueue_jobs('q', '{bad}', '{1}', '{}', array[%s::jsonb])",
    }
    with suppress(psycopg.DataError, psycopg.errors.CheckViolation):
        connection.execute(calls[function].encode(), [text])
    ops = postgres.operations("sync")
    pgjq.Client(postgres).enqueue("q", None, 1)
    for statement in ("claim", "reap", "prune_waiting"):
        connection.execute("update pgjq.job set locked_until = pgjq.now() - interval '1 s' where state = 1")
        params = {"claim": "'{q}', 1, 10, 30, 900, null, false", "reap": "10, 0", "prune_waiting": "10"}
        connection.execute(f"select pgjq.{statement}({params[statement]})".encode())
    drive(ops.delete("q", [job.id for job in drive(ops.find(JobFilter(queue="q")))[0]]))
    assert drive(ops.find(JobFilter(queue="q")))[0] == []
    connection.execute("delete from pgjq.job; delete from pgjq.done; delete from pgjq.body; delete from pgjq.time_slot")


@pytest.mark.parametrize(
    "call",
    [
        "create_queue('new', 0, false, null, '{\"heartbeat_seconds\": 1e-400}')",
        "create_queue('new', 0, false, null, '{\"retry_limit\": 40000}')",
        "create_queue('new', 0, false, null, '{\"retry_limit\": 1.5}')",
        "create_queue('new', 0, false, null, '{\"retry_limit\": \"many\"}')",
        "create_queue('new', 0, false, null, '{\"unheard_of\": 1}')",
        "update_queue('old', '{\"delete_after_seconds\": 1e-50}')",
        "update_queue('old', '{\"retention_seconds\": 1e300}')",
    ],
)
def test_a_definition_out_of_bounds_is_refused_in_sql(call: str, postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).create_queue("old")
    with pytest.raises(psycopg.errors.CheckViolation, match="out of bounds"):
        execute(postgres.conninfo, "select pgjq." + call)


def test_role_worker_cannot_register_with_a_heartbeat_that_stops_pruning(by_role: ByRole) -> None:
    worker = by_role.storages["worker"].conninfo
    execute(worker, "insert into pgjq.worker (name) values ('w') on conflict do nothing")
    with pytest.raises(psycopg.errors.CheckViolation):
        execute(worker, "insert into pgjq.registration (id, worker_id, queues, heartbeat)"
                        " select 'r', id, '{}', 1e300 from pgjq.worker where name = 'w'")  # fmt: skip


def test_role_worker_cannot_prune_jobs_that_have_not_waited_for_their_retention(by_role: ByRole) -> None:
    by_role.client.enqueue("pruned", "waiting", 1)
    worker = by_role.storages["worker"]
    with pytest.raises(psycopg.errors.UndefinedFunction):
        execute(worker.conninfo, "select pgjq.prune_waiting(100000, 0)")
    drive(worker.operations("sync").prune())
    assert by_role.client.get_status("pruned", "waiting") is not None
