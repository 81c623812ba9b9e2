"""Release: from `queue.stop(grace=0)` in one process until another worker's handler begins the same job.

Two processes pass one job back and forth: whoever holds it is stopped, and the other one, idle until then, gets it.
The job's handler never ends by itself; a coroutine is cancelled, a plain function hears of it by its signal. The clock
is CLOCK_MONOTONIC, which all processes of a Linux machine share.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import migrated_database, opened
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Scale, against_number
from benchmarks.processes import process
from benchmarks.workers import Kind, hold

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

TARGET = 100.0
UNTIL_IDLE = 0.5


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both kinds of handlers."""
    return [_finding(server, "coroutine", scale.releases), _finding(server, "plain", scale.releases)]


def _finding(server: EmbeddedServer, kind: Kind, times: int) -> Finding:
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, f"release_{kind}"))
        holder, idler = (stack.enter_context(process(hold, conninfo, kind)) for _ in range(2))
        _start(holder)
        with opened(conninfo) as storage:
            pgjq.Client(storage).enqueue(QUEUE, None, "hot potato")
        holder.recv()
        taken: list[float] = []
        for _ in range(times):
            _start(idler)
            time.sleep(UNTIL_IDLE)
            taken.append(_pass_on(holder, idler))
            holder, idler = idler, holder
    what = f"stop(grace=0) until another worker begins the job, {kind}"
    return against_number(taken, TARGET, what=what, unit="ms", side="at most")


def _start(worker: Connection) -> None:
    worker.send("start")
    worker.recv()


def _pass_on(holder: Connection, idler: Connection) -> float:
    holder.send("stop")
    began = idler.recv()
    return (began - holder.recv()) / 1e6
