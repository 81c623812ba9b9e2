"""Steady load while an old transaction stays open: a long report, or a `pg_dump`.

Its snapshot keeps vacuum from removing anything, so dead entries pile up at the head of the index that claims walk. One
connection enqueues 500 jobs and then claims and settles as many, again and again, behind a backlog. The rate of claims
and settles in the last part of the time is set against that in the first. `--pinned 600` measures the ten minutes that
were promised; the usual time is shorter. The parts are a tenth of the time each, and a minute at most. The processor
time of the server process is shown as well: other work on the machine changes it least.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import connect, migrated_database, opened, run_statement, statement
from benchmarks.jobs import QUEUE, payloads
from benchmarks.measure import Finding, Scale, Target
from benchmarks.processor_time import seconds
from benchmarks.workers import FLOOR_BATCH, claim_and_settle

if TYPE_CHECKING:
    from pgjq.embedded import EmbeddedServer

RATE = Target(0.7)
PROCESSOR = Target(1.43, "at most")  # 1 / 0.7.
BACKLOG = 20_000
PART = 60.0


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure it once: the clock is the point."""
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "pinned"))
        storage = stack.enter_context(opened(conninfo))
        client, operations = pgjq.Client(storage), storage.operations("sync")
        run_statement(conninfo, "fill", {"queue": QUEUE, "count": BACKLOG, "priority": 0, "delay": 0.0})
        run_statement(conninfo, "vacuum")
        claim_and_settle(operations)
        old = stack.enter_context(connect(conninfo))
        old.execute("begin isolation level repeatable read")
        old.execute("select count(*) from pgjq.job")
        jobs = [(None, value) for value in payloads(FLOOR_BATCH)]
        done: list[tuple[float, float, float]] = []  # When, and by the clock and the processor how long.
        backend = _backend(conninfo)
        start = time.monotonic()
        while (now := time.monotonic()) - start < scale.pinned:
            client.enqueue_many(QUEUE, jobs)
            begun, used = time.monotonic(), seconds(backend)
            claimed = claim_and_settle(operations)
            assert claimed == FLOOR_BATCH
            done.append((now - start, time.monotonic() - begun, seconds(backend) - used))
        size = _megabytes(conninfo)
    part = min(PART, scale.pinned / 10)
    first = [batch for batch in done if batch[0] < part]
    last = [batch for batch in done if batch[0] >= scale.pinned - part]
    what, against = f"drain, the last {part:g} of {scale.pinned:g} s beside an old snapshot", f"the first {part:g} s"
    rates = [FLOOR_BATCH * len(batches) / sum(took for _, took, _ in batches) for batches in (last, first)]
    used = [1e3 * sum(spent for *_, spent in batches) / len(batches) for batches in (last, first)]
    count = FLOOR_BATCH * len(done)
    return [
        Finding(what, against, "jobs/s", rates[0], rates[1], [rates[0] / rates[1]], RATE),
        Finding(f"{what}: processor", against, "ms", used[0], used[1], [used[0] / used[1]], PROCESSOR),
        Finding(f"database after {count:,} jobs", "1 kB a job", "MB", size, count / 1e3, [size * 1e3 / count], None),
    ]


def _backend(conninfo: str) -> int:
    with connect(conninfo) as connection:
        row = connection.execute(statement("backend"), {"name": "pinned"}).fetchone()
    assert row is not None
    return row[0]


def _megabytes(conninfo: str) -> float:
    with connect(conninfo) as connection:
        row = connection.execute(statement("size")).fetchone()
    assert row is not None
    return row[0] / 1e6
