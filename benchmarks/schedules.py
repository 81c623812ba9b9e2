"""What schedules cost: how soon many ticks of one second are made, and what they cost a worker that sleeps.

* A thousand schedules run first at the same second. Two workers, processes that serve another queue, plan and wait. The
  figure is how long after that second the last job was there, by the server's clock; the target is a second.
* Two idle workers, each in a database of its own, run side by side: one database has 10,000 schedules whose next run is
  far off, the other none. The server counts their transactions, the system their CPU time. The first seconds, in which
  the schedules are planned, are not counted.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import connect, migrated_database, run_statement, statement
from benchmarks.measure import Finding, Scale, Target, against_number, compare
from benchmarks.processes import process

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

TICKS, WORKERS = 1_000, 2
SECOND = 1.0
MANY = 10_000
FAR_OFF = 86_400.0
UNTIL_DUE = 5.0
UNTIL_IDLE = 5.0
POLL = 0.05
NOTHING = Target(1.1, "at most")
NAMES = ("schedules", "none")


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure the ticks, then the idle workers."""
    return [_measure_ticks(server, scale), *_measure_idle(server, scale)]


def work(orders: Connection, conninfo: str) -> None:
    """Run a worker until the pipe says so."""
    queue = pgjq.Queue("other", storage=pgjq.PostgresStorage(conninfo))
    queue.execute(lambda job: job.id)
    with queue:
        orders.send(os.getpid())
        orders.recv()


def _measure_ticks(server: EmbeddedServer, scale: Scale) -> Finding:
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "ticks"))
        for _ in range(WORKERS):
            stack.enter_context(process(work, conninfo)).recv()
        samples = [_tick(conninfo) for _ in range(scale.rounds)]
    what = f"{TICKS:,} ticks of one second by {WORKERS} workers"
    return against_number(samples, SECOND, what=what, unit="s", side="at most")


def _tick(conninfo: str) -> float:
    with connect(conninfo) as connection:
        connection.execute(statement("delete_schedules"))
        connection.execute(statement("create_schedules"), {"count": TICKS, "delay": UNTIL_DUE})
        made, seconds = 0, 0.0
        while made < TICKS:
            time.sleep(POLL)
            ((made, seconds),) = connection.execute(statement("tick_seconds")).fetchall()
    return seconds


def _measure_idle(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    with ExitStack() as stack:
        conninfos = {name: stack.enter_context(migrated_database(server, name)) for name in NAMES}
        run_statement(conninfos["schedules"], "create_schedules", {"count": MANY, "delay": FAR_OFF})
        pids = {name: stack.enter_context(process(work, conninfos[name])).recv() for name in NAMES}
        _wait_for_plans(conninfos["schedules"])
        time.sleep(UNTIL_IDLE)
        queries, cpu = _watch(server, pids, scale.idle, scale.claims)
    against = "the same without schedules"
    what = f"an idle worker with {MANY:,} schedules"
    return [
        compare(queries, *NAMES, what=f"queries of {what}", against=against, unit="queries/s", target=NOTHING),
        compare(cpu, *NAMES, what=f"CPU of {what}, a second", against=against, unit="ms", target=NOTHING),
    ]


def _wait_for_plans(conninfo: str) -> None:
    with connect(conninfo) as connection:
        while connection.execute(statement("unplanned_schedules")).fetchone() != (0,):
            time.sleep(POLL)


Samples = dict[str, list[float]]


def _watch(server: EmbeddedServer, pids: dict[str, int], seconds: float, rounds: int) -> tuple[Samples, Samples]:
    """Return the queries a second and the CPU milliseconds a second of both workers in each round."""
    queries: Samples = {name: [] for name in NAMES}
    cpu: Samples = {name: [] for name in NAMES}
    for _ in range(rounds):
        before = {name: (_transactions(server, name), _milliseconds(pid)) for name, pid in pids.items()}
        time.sleep(seconds)
        for name, pid in pids.items():
            queries[name].append((_transactions(server, name) - before[name][0]) / seconds)
            cpu[name].append((_milliseconds(pid) - before[name][1]) / seconds)
    return queries, cpu


def _transactions(server: EmbeddedServer, database: str) -> int:
    with connect(server.conninfo) as connection:
        ((count,),) = connection.execute(statement("commits"), {"name": database}).fetchall()
    return count


def _milliseconds(pid: int) -> float:
    """Return the CPU time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")
