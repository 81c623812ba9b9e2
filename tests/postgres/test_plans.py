"""The statements of the hot path walk the index they were written for, whatever the statistics say.

A queue is full one minute and empty the next, so statistics are always about another time. Each plan is looked at with
none, with those of an empty table, and with fresh ones.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.storage.postgres.queries import Queries
from tests.conftest import new_database

if TYPE_CHECKING:
    from collections.abc import Iterator

QUERIES = Queries("pgjq")
JOBS = 30_000
RUNNING = 500
LEASES = {"queue_ids": [1] * 200, "seqs": list(range(200)), "leases": [1] * 200}
SETTLE = LEASES | {"states": [3] * 200, "results": [b"1"] * 200, "errors": [None] * 200, "delays": [None] * 200}
CLAIM = {"queue": "q", "worker": 1, "limit": 200, "lease": 30.0, "expire": 900.0, "max_stalled": None}
HOT: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "claim": (CLAIM | {"requeue_exhausted": False}, {"head": "job_default_queue_id_rank_seq_idx"}),
    "promote": ({}, {"w": "job_default_run_at_idx"}),
    "settle": (SETTLE, {"j": "job_default_pkey"}),
    "heartbeat": (LEASES, {"j": "job_default_pkey"}),
    "reap": ({"limit": 500, "stale_age": 0.0}, {"j": "job_default_locked_until_idx"}),
    "next_deadline": ({}, {"j": "job_default_locked_until_idx"}),
    "prune_ended": ({"limit": 500}, {"past": "done_default_delete_at_idx"}),
    "get": ({"queue": "q", "ids": ["1"]}, {"b": "body_default_queue_id_id_idx"}),
    "cancel": ({"queue": "q", "id": "1"}, {"b": "body_default_queue_id_id_idx", "j": "job_default_pkey"}),
}
# Whole tables that are small for ever: a row for each queue, a row for each worker.
SMALL = {"queue", "worker"}


@pytest.fixture(scope="module", params=["never analysed", "analysed when empty", "analysed when full"])
def full(request: pytest.FixtureRequest, server: str) -> Iterator[psycopg.Connection[Any]]:
    """A queue of many jobs, some of them running, some in the future, with statistics of some time or none."""
    with new_database(server) as conninfo:
        pgjq.migrate(conninfo)
        with psycopg.connect(conninfo, autocommit=True) as connection:
            fill(connection, request.param)
            yield connection


def fill(connection: psycopg.Connection[Any], statistics: str) -> None:
    for table in ("job", "body", "done"):
        connection.execute(f"alter table pgjq.{table}_default set (autovacuum_enabled = off)")
    if statistics == "analysed when empty":
        connection.execute("vacuum analyze pgjq.job, pgjq.body, pgjq.done")
    connection.execute(
        "select pgjq.enqueue_jobs('q', array_agg(n::text), array_agg('1'::bytea)) from generate_series(1, %s) n", [JOBS]
    )
    connection.execute("update pgjq.job set ready = false, run_at = now() + '1 day', rank = -1 where seq % 10 = 0")
    connection.execute(QUERIES.psycopg("claim"), CLAIM | {"requeue_exhausted": False, "limit": RUNNING})
    connection.execute(
        "insert into pgjq.done select seq, now(), now(), now(), now() + '1 day', 1, 1, 1, 0, 0, 1, 3, 0, 3"
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


def test_a_claim_does_not_sort_the_queue(full: psycopg.Connection[Any]) -> None:
    params, _ = HOT["claim"]
    head = next(n for n in nodes(plan(full, "claim", params)) if n["Node Type"] == "Limit")
    assert "Sort" not in {node["Node Type"] for node in nodes(head)}


@pytest.mark.parametrize("name", ["claim", "reap", "next_deadline", "promote"])
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
