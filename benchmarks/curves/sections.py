"""What is measured at each size: a drain, a claim, and the ticks of schedules.

Each section has a database of its own. A drain claims and settles 500 jobs at a time on one connection, without
handlers, so that a curve shows the storage; only the section of processes runs whole workers. A claim takes 200 jobs.
Claims are given as processor time of the server process, too, which other work on the machine changes least.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import pgjq
from benchmarks.curves.plot import Panel
from benchmarks.databases import connect, migrated_database, opened, run_statement, statement
from benchmarks.jobs import QUEUE
from benchmarks.processes import process
from benchmarks.processor_time import seconds
from benchmarks.schedules import work
from benchmarks.workers import drain as run_worker
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.embedded import EmbeddedServer
    from pgjq.policy import PolicyName
    from pgjq.storage.base import Claimed

BATCH, CLAIM, ROUNDS = 500, 200, 5
AT_ONCE = 500_000
BACKLOG = 20_000
LONGEST = 5.0  # Seconds of one drain.
FILLS = 20
POLICIES: tuple[PolicyName, ...] = ("standard", "short", "singleton", "stately", "exclusive", "key_strict_fifo")
POLL = 0.05
LEASE = pgjq.LeasePolicy(lease=3600.0)


@dataclass(frozen=True)
class Drained:
    """Jobs, and the seconds in which they were claimed and settled."""

    jobs: int
    took: float


class Database:
    """A database of a section, with one connection that claims and settles."""

    def __init__(self, stack: ExitStack, server: EmbeddedServer, name: str) -> None:
        self.conninfo = stack.enter_context(migrated_database(server, name))
        self.storage = stack.enter_context(opened(self.conninfo))
        self._operations = self.storage.operations("sync")
        self.queues = [QUEUE]
        self.claim(1)
        with connect(self.conninfo) as connection:
            row = connection.execute(statement("backend"), {"name": name}).fetchone()
        assert row is not None
        self._backend: int = row[0]

    def fill(self, count: int, *, ended: bool = False, queue: str = QUEUE) -> None:
        """Add jobs that wait, or that have ended."""
        for start in range(0, count, AT_ONCE):
            part = {"queue": queue, "count": min(AT_ONCE, count - start)}
            if ended:
                run_statement(self.conninfo, "fill_ended", part)
            else:
                run_statement(self.conninfo, "fill", part | {"priority": 0, "delay": 0.0})

    def settle_down(self) -> None:
        """Vacuum, analyse and write a checkpoint, so that none of them happens while a sample is taken."""
        run_statement(self.conninfo, "vacuum")
        run_statement(self.conninfo, "checkpoint")

    def claim(self, limit: int) -> list[Claimed]:
        """Claim from all queues of the section."""
        return drive(self._operations.claim(self.queues, worker="bench", limit=limit, policy=LEASE))

    def complete(self, claimed: Sequence[Claimed]) -> None:
        """Settle claimed jobs."""
        drive(self._operations.settle([Settlement(job.lease, Completed(b"1")) for job in claimed]))

    def drain(self, count: int) -> Drained:
        """Claim and settle jobs until there were so many, none is left, or it has taken too long."""
        done, start = 0, time.perf_counter()
        while done < count and time.perf_counter() - start < LONGEST:
            claimed = self.claim(BATCH)
            if not claimed:
                break
            self.complete(claimed)
            done += len(claimed)
        return Drained(done, time.perf_counter() - start)

    def timed_claims(self) -> tuple[float, float]:
        """Return the median milliseconds of a claim, by the clock and of the server's processor."""
        clock: list[float] = []
        processor: list[float] = []
        for _ in range(ROUNDS):
            used, start = seconds(self._backend), time.perf_counter()
            claimed = self.claim(CLAIM)
            clock.append((time.perf_counter() - start) * 1000)
            processor.append((seconds(self._backend) - used) * 1000)
            self.complete(claimed)
        return median(clock), median(processor)


class Pair:
    """Two panels: the rate of a drain, and the time of a claim."""

    def __init__(self, title: str, sizes: str) -> None:
        self.drain = Panel(f"Drain, {title}", sizes, "jobs/s")
        self.claim = Panel(f"Claim of {CLAIM}, {title}", sizes, "ms")

    def measure(self, database: Database, size: int) -> None:
        """Add a point to each curve."""
        clock, processor = database.timed_claims()
        self.claim.add("by the clock", size, clock)
        self.claim.add("processor of the server", size, processor)
        drained = database.drain(BACKLOG // 4)
        self.drain.add("one connection", size, drained.jobs / drained.took)


def waiting(server: EmbeddedServer, sizes: Sequence[int]) -> list[Panel]:
    """Measure with more and more jobs that wait."""
    return _growing(server, sizes, ended=False)


def ended(server: EmbeddedServer, sizes: Sequence[int]) -> list[Panel]:
    """Measure with more and more jobs that have ended."""
    return _growing(server, sizes, ended=True)


def _growing(server: EmbeddedServer, sizes: Sequence[int], *, ended: bool) -> list[Panel]:
    pair = Pair("many ended jobs", "ended jobs") if ended else Pair("many waiting jobs", "waiting jobs")
    for size in sorted(sizes):
        with ExitStack() as stack:
            database = Database(stack, server, "curve")
            if ended:
                database.fill(size, ended=True)
            database.fill(BACKLOG if ended else size + ROUNDS * CLAIM)  # The timed claims take their own jobs.
            database.settle_down()
            pair.measure(database, size)
    return [pair.drain, pair.claim]


def processes(server: EmbeddedServer, sizes: Sequence[int]) -> list[Panel]:
    """Measure with more and more worker processes: whole workers, handlers that are coroutines."""
    panel = Panel("Drain by worker processes", "processes", "jobs/s")
    for size in sorted(sizes):
        with ExitStack() as stack:
            database = Database(stack, server, "curve")
            database.fill(3 * BACKLOG)  # A worker must not run out of jobs before it had its share.
            database.settle_down()
            workers = [stack.enter_context(process(run_worker, database.conninfo, "coroutine")) for _ in range(size)]
            for worker in workers:
                worker.send(BACKLOG // size)
            panel.add("all together", size, sum(worker.recv().rate for worker in workers))
    return [panel]


def queues(server: EmbeddedServer, sizes: Sequence[int]) -> list[Panel]:
    """Measure claims from more and more queues at once, which share the same number of jobs."""
    pair = Pair("from many queues at once", "queues")
    for size in sorted(sizes):
        with ExitStack() as stack:
            database = Database(stack, server, "curve")
            database.queues = [f"{QUEUE}-{number}" for number in range(size)]
            for name in database.queues:
                database.fill(max(1, BACKLOG // size), queue=name)
            database.settle_down()
            pair.measure(database, size)
    return [pair.drain, pair.claim]


def keys(server: EmbeddedServer, sizes: Sequence[int]) -> list[Panel]:
    """Measure each policy with more and more keys; where a key has one queued job at most, the queue is refilled."""
    panel = Panel("Drain by policy", "keys", "jobs/s")
    for policy in POLICIES:
        for size in sorted(sizes):
            with ExitStack() as stack:
                database = Database(stack, server, "curve")
                pgjq.Client(database.storage).create_queue(QUEUE, policy=policy)
                drained = _drain_keys(database, size, one_each=policy in ("short", "stately", "exclusive"))
            panel.add(policy, size, drained.jobs / drained.took)
    return [panel]


def _drain_keys(database: Database, size: int, *, one_each: bool) -> Drained:
    count = size if one_each else max(size, BACKLOG)
    done, took = 0, 0.0
    for _ in range(FILLS):
        fill = {"queue": QUEUE, "count": count, "keys": size, "together": False}
        run_statement(database.conninfo, "truncate")
        run_statement(database.conninfo, "fill_keys", fill)
        database.settle_down()
        drained = database.drain(BACKLOG // 4)
        done, took = done + drained.jobs, took + drained.took
        if done >= BACKLOG // 4 or took >= LONGEST:
            break
    return Drained(done, took)


def schedules(server: EmbeddedServer, sizes: Sequence[int]) -> list[Panel]:
    """Measure how long after a second one worker has made the jobs of all schedules that are due in it."""
    panel = Panel("Ticks of one second by one worker", "schedules", "s")
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "curve"))
        stack.enter_context(process(work, conninfo)).recv()
        for size in sorted(sizes):
            panel.add("last job there after", size, _tick(conninfo, size))
    return [panel]


def _tick(conninfo: str, count: int) -> float:
    made, last = 0, 0.0
    with connect(conninfo) as connection:
        connection.execute(statement("delete_schedules"))
        connection.execute(statement("create_schedules"), {"count": count, "delay": 3 + count / 500})
        while made < count:
            time.sleep(POLL)
            ((made, last),) = connection.execute(statement("tick_seconds")).fetchall()
    return last
