"""Growth: a drain and claims with many jobs waiting and many ended, against 400,000 of each.

Two databases, each filled once in SQL, vacuumed and analysed. In each round some jobs are claimed and settled, 500 at a
time on one connection, from each of them by turns; then 200 are claimed. Both are measured by the clock, and once more
as processor time of the server process, which other work on the machine changes least.
`--growth 10000000` measures the size that was promised, which takes a quarter of an hour and 15 GB of disk.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import connect, migrated_database, opened, run_statement, statement
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Sampler, Scale, Target, Unit, compare, interleave
from benchmarks.processor_time import seconds
from benchmarks.workers import claim_and_settle
from pgjq.blocking import drive

if TYPE_CHECKING:
    from pgjq.embedded import EmbeddedServer

FEW = 400_000
AT_ONCE = 500_000
DRAINED = 5_000
CLAIM = 200
RATE = Target(0.9)
TIME = Target(1.11, "at most")  # 1 / 0.9.


class Filled:
    """A database with jobs, one connection to it, and what a round took there by the clock and of the processor."""

    def __init__(self, stack: ExitStack, server: EmbeddedServer, name: str, size: int) -> None:
        conninfo = stack.enter_context(migrated_database(server, name))
        for start in range(0, size, AT_ONCE):
            count = min(AT_ONCE, size - start)
            run_statement(conninfo, "fill_ended", {"queue": QUEUE, "count": count})
            run_statement(conninfo, "fill", {"queue": QUEUE, "count": count, "priority": 0, "delay": 0.0})
        run_statement(conninfo, "vacuum")
        run_statement(conninfo, "checkpoint")
        self.size = f"{size:,} waiting and {size:,} ended"
        self._operations = stack.enter_context(opened(conninfo)).operations("sync")
        claim_and_settle(self._operations)
        with connect(conninfo) as connection:
            row = connection.execute(statement("backend"), {"name": name}).fetchone()
        assert row is not None
        self._backend: int = row[0]
        self.processor: list[float] = []

    def drain(self) -> float:
        """Return jobs a second."""
        used, start, done = seconds(self._backend), time.perf_counter(), 0
        while done < DRAINED:
            done += claim_and_settle(self._operations)
        took = time.perf_counter() - start
        self.processor.append((seconds(self._backend) - used) * 1000)
        return done / took

    def claim(self) -> float:
        """Return milliseconds."""
        used, start = seconds(self._backend), time.perf_counter()
        found = drive(self._operations.claim([QUEUE], worker="bench", limit=CLAIM, policy=pgjq.LeasePolicy()))
        took = time.perf_counter() - start
        assert len(found) == CLAIM
        self.processor.append((seconds(self._backend) - used) * 1000)
        return took * 1000


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both sizes by turns."""
    with ExitStack() as stack:
        sizes = {"growth_many": scale.growth, "growth_few": min(FEW, scale.growth // 2)}
        many, few = (Filled(stack, server, name, size) for name, size in sizes.items())
        drains: dict[str, Sampler] = {"many": many.drain, "few": few.drain}
        claims: dict[str, Sampler] = {"many": many.claim, "few": few.claim}
        return [
            *_findings(f"drain of {DRAINED:,}", many, few, drains, scale.rounds, "jobs/s", RATE),
            *_findings(f"claim of {CLAIM}", many, few, claims, scale.rounds, "ms", TIME),
        ]


def _findings(  # noqa: PLR0917
    what: str, many: Filled, few: Filled, contenders: dict[str, Sampler], rounds: int, unit: Unit, target: Target
) -> list[Finding]:
    many.processor, few.processor = [], []
    samples = interleave(contenders, rounds)
    used = {"many": many.processor[-rounds:], "few": few.processor[-rounds:]}
    what = f"{what}, {many.size}"
    return [
        compare(samples, "many", "few", what=what, against=few.size, unit=unit, target=target),
        compare(used, "many", "few", what=f"{what}: processor", against=few.size, unit="ms", target=TIME),
    ]
