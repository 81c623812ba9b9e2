"""What a worker costs by being there: its memory after many jobs, and its queries when there is nothing to do.

Memory is the resident set of the worker's process, after 100,000 jobs, when everything has been used, and after
1,000,000. Queries are counted by the server, as transactions of the worker's database: each statement of an idle worker
commits by itself, and nobody else is connected to it. The first seconds after the last job are not counted.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.databases import connect, migrated_database, run_statement, statement
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Scale, Target, against_number
from benchmarks.processes import process
from benchmarks.workers import serve

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

DATABASE = "serve"
MEMORY = Target(1.1, "at most")
QUERIES = 1.0
UNTIL_IDLE = 5.0


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure memory, then queries, of one and the same worker."""
    with migrated_database(server, DATABASE) as conninfo, process(serve, conninfo) as worker:
        fresh = _megabytes(_work(worker, conninfo, scale.worn_in))
        worn = fresh
        for _ in range(scale.worn_in, scale.worn_out, scale.worn_in):
            worn = _megabytes(_work(worker, conninfo, scale.worn_in))
        time.sleep(UNTIL_IDLE)
        idle = _queries_per_second(server, scale.idle)
    what = f"resident memory after {scale.worn_out:,} jobs"
    against = f"after {scale.worn_in:,}"
    return [
        Finding(what, against, "MB", worn, fresh, [worn / fresh], MEMORY),
        against_number([idle], QUERIES, what="queries of an idle worker", unit="queries/s", side="at most"),
    ]


def _work(worker: Connection, conninfo: str, count: int) -> int:
    """Have some jobs done, and return the number of the process that did them."""
    worker.send(count)
    pid: int = worker.recv()
    run_statement(conninfo, "fill", {"queue": QUEUE, "count": count, "priority": 0, "delay": 0.0})
    worker.recv()
    return pid


def _megabytes(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024


def _queries_per_second(server: EmbeddedServer, seconds: float) -> float:
    before, start = _transactions(server), time.monotonic()
    time.sleep(seconds)
    return (_transactions(server) - before) / (time.monotonic() - start)


def _transactions(server: EmbeddedServer) -> int:
    with connect(server.conninfo) as connection:
        row = connection.execute(statement("commits"), {"name": DATABASE}).fetchone()
    assert row is not None
    return row[0]
