"""A worker's memory after many jobs.

Memory is the resident set of the worker's process, after 100,000 jobs, when everything has been used, and after
1,000,000.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.databases import migrated_database, run_statement
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Scale, Target
from benchmarks.processes import process
from benchmarks.workers import serve

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

DATABASE = "serve"
MEMORY = Target(1.1, "at most")


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure one and the same worker twice."""
    with migrated_database(server, DATABASE) as conninfo, process(serve, conninfo) as worker:
        fresh = _megabytes(_work(worker, conninfo, scale.worn_in))
        worn = fresh
        for _ in range(scale.worn_in, scale.worn_out, scale.worn_in):
            worn = _megabytes(_work(worker, conninfo, scale.worn_in))
    what = f"resident memory after {scale.worn_out:,} jobs"
    against = f"after {scale.worn_in:,}"
    return [Finding(what, against, "MB", worn, fresh, [worn / fresh], MEMORY)]


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
