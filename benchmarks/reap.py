"""Reaping at a backlog of a million with ten thousand jobs running, against numbers that were promised.

What is timed is the operation that reapers call: one pass with nothing to do, and, for ten thousand jobs whose workers
all died at once, passes of a thousand until nothing is left. Between two rounds the same number of jobs is set running
again, and the table is vacuumed as autovacuum would do it. The pages that an idle pass reads are counted, too, because
time on a busy machine says little.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from benchmarks.databases import connect, migrated_database, opened, run_statement
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Scale, against_number
from pgjq.blocking import drive
from pgjq.storage.postgres.queries import Queries
from pgjq.worker.reaping import BATCH

if TYPE_CHECKING:
    from pgjq.embedded import EmbeddedServer
    from pgjq.storage.base import Operations

RUNNING = 10_000
LEASE = 3600.0
IDLE_MS = 5.0
IDLE_PAGES = 200.0
ALL_MS = 2_000.0


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure idle passes, then rounds in which everything stalls."""
    with migrated_database(server, "reap") as conninfo:
        run_statement(conninfo, "fill", {"queue": QUEUE, "count": scale.backlog + RUNNING, "priority": 0, "delay": 0.0})
        run_statement(conninfo, "run", {"count": RUNNING, "lease": LEASE})
        run_statement(conninfo, "vacuum")
        with opened(conninfo) as storage:
            operations = storage.operations("sync")
            _pass(operations)
            idle = [_timed(operations, 0) for _ in range(scale.rounds * 5)]
            pages = [_pages(conninfo) for _ in range(3)]
            stalled = [_take_all_back(conninfo, operations) for _ in range(scale.claims)]
    where = f"{scale.backlog:,} queued, {RUNNING:,} processing"
    return [
        against_number(idle, IDLE_MS, what=f"a pass with nothing to do, {where}", unit="ms", side="at most"),
        against_number(pages, IDLE_PAGES, what="pages that such a pass reads", unit="pages", side="at most"),
        against_number(stalled, ALL_MS, what=f"taking {RUNNING:,} stalled jobs back", unit="ms", side="at most"),
    ]


def _take_all_back(conninfo: str, operations: Operations) -> float:
    run_statement(conninfo, "lapse")
    run_statement(conninfo, "vacuum")
    elapsed = _timed(operations, RUNNING)
    run_statement(conninfo, "run", {"count": RUNNING, "lease": LEASE})
    return elapsed


def _timed(operations: Operations, expected: int) -> float:
    start = time.perf_counter()
    taken = _pass(operations)
    elapsed = time.perf_counter() - start
    assert taken == expected
    return elapsed * 1000


def _pass(operations: Operations) -> int:
    """Reap as reapers do: while batches are full."""
    taken = 0
    while True:
        found = len(drive(operations.reap(limit=BATCH)))
        taken += found
        if found < BATCH:
            return taken


def _pages(conninfo: str) -> float:
    with connect(conninfo) as connection:
        statement = b"explain (analyze, buffers, format json) " + Queries("pgjq").psycopg("reap")
        for _ in range(2):  # The first call in a session reads catalogues, to make its plan.
            row: Any = connection.execute(statement, {"limit": BATCH, "stale_age": 0.0}).fetchone()
    plan = row[0][0]["Plan"]
    return plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
