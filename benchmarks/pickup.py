"""Pickup: from just before a job is enqueued until its handler begins, in an idle worker of another process.

The clock is CLOCK_MONOTONIC, which all processes of a Linux machine share. It runs while the client's transaction
commits, so the disk is in it. Jobs come at random, 30 to 80 ms apart: the worker has gone to sleep before each of them.
PgQueuer's worker takes turns with pgjq's, with its jobs enqueued by its own client.
"""

from __future__ import annotations

import random
import time
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles
from typing import TYPE_CHECKING

import pgjq
from benchmarks import pgqueuer_worker, workers
from benchmarks.databases import migrated_database, opened
from benchmarks.jobs import QUEUE
from benchmarks.measure import Finding, Sampler, Scale, against_number, compare, interleave
from benchmarks.pgqueuer_peer import pgqueuer
from benchmarks.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

PAUSE = (0.03, 0.08)
WARM_UP = 1.0
P50 = 2.0
P99 = 6.0


class Idler:
    """A worker that waits, and a way to give it one job."""

    def __init__(self, worker: Connection, enqueue: Callable[[int], object]) -> None:
        self._worker = worker
        self._enqueue = enqueue
        self.worst: list[float] = []

    def median(self, count: int) -> float:
        """Enqueue some jobs, one at a time; return the median of the milliseconds until each began."""
        taken = self._milliseconds(count)
        self.worst.append(quantiles(taken, n=100, method="inclusive")[98])
        return median(taken)

    def _milliseconds(self, count: int) -> Sequence[float]:
        enqueued: dict[int, int] = {}
        for number in range(count):
            time.sleep(random.uniform(*PAUSE))  # noqa: S311
            enqueued[number] = time.monotonic_ns()
            self._enqueue(number)
        time.sleep(WARM_UP)
        self._worker.send("report")
        began: dict[int, int] = self._worker.recv()
        assert began.keys() == enqueued.keys()
        return [(began[number] - moment) / 1e6 for number, moment in enqueued.items()]


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both by turns."""
    with ExitStack() as stack:
        ours = stack.enter_context(_ours(server))
        theirs = stack.enter_context(_pgqueuer(server))
        contenders: dict[str, Sampler] = {
            "ours": lambda: ours.median(scale.pickups),
            "pgqueuer": lambda: theirs.median(scale.pickups),
        }
        middle = interleave(contenders, scale.drains)
    worst = {"ours": ours.worst[-scale.drains :], "pgqueuer": theirs.worst[-scale.drains :]}
    return [
        against_number(middle["ours"], P50, what="pickup by an idle worker, p50", unit="ms", side="at most"),
        against_number(worst["ours"], P99, what="pickup by an idle worker, p99", unit="ms", side="at most"),
        compare(middle, "ours", "pgqueuer", what="the same, p50", against="PgQueuer", unit="ms", target=None),
        compare(worst, "ours", "pgqueuer", what="the same, p99", against="PgQueuer", unit="ms", target=None),
    ]


@contextmanager
def _ours(server: EmbeddedServer) -> Generator[Idler]:
    with (
        migrated_database(server, "pickup") as conninfo,
        opened(conninfo) as storage,
        process(workers.note_starts, conninfo) as worker,
    ):
        client = pgjq.Client(storage)
        assert worker.recv() == "working"
        yield Idler(worker, lambda number: client.enqueue(QUEUE, None, number))


@contextmanager
def _pgqueuer(server: EmbeddedServer) -> Generator[Idler]:
    with pgqueuer(server) as enqueuer, process(pgqueuer_worker.note_starts, enqueuer.conninfo) as worker:
        assert worker.recv() == "working"
        yield Idler(worker, lambda number: enqueuer.enqueue_one(str(number).encode()))
