"""A worker's throughput: one process drains a backlog of jobs that do nothing, against two peers that do the same.

Each worker is one process with one event loop, reads its payload as JSON (about 285 bytes) and does nothing with it.
The backlog is there before the clock starts, vacuumed and analysed; the clock starts in the worker's own process, when
it begins to consume, and stops when the last completion is committed. pgjq returns a small result, which is kept, and
settles under its lease; neither peer has results or a fence.

* PgQueuer runs as its documentation makes it fastest: asyncpg, uvloop, no limits on concurrency. Its batch size, and
  whether it gets one connection or a pool, is whatever is fastest here and now, found by trying in the same run.
* graphile-worker runs with the settings of its documentation's section on performance: local queue of 500 and batched
  completion. It needs Node and npm, and is left out where they are missing.
* The floor is claim and settle in a loop on one connection, 500 at a time, with no worker around it.
"""

from __future__ import annotations

from contextlib import ExitStack
from statistics import mean, median
from typing import TYPE_CHECKING, Any

import pgjq
from benchmarks.databases import migrated_database, opened, run_statement
from benchmarks.graphile_peer import graphile
from benchmarks.jobs import QUEUE, payloads
from benchmarks.measure import Finding, Sampler, Scale, Target, against_number, compare, interleave
from benchmarks.pgqueuer_worker import PgQueuerWorker, pgqueuer_worker
from benchmarks.processes import process
from benchmarks.workers import CONCURRENCY, FLOOR_BATCH, Drained, drain, drain_bare

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.connection import Connection

    from pgjq.embedded import EmbeddedServer

BATCH = 1_000
TO_TRY = 20_000
TRIES = 3  # One try each picked a setting that was a third slower than its best.
COROUTINES = 20_000
PLAIN = 10_000
PGQUEUER = Target(2.0)
GRAPHILE = Target(1.25)
SAME = Target(1.0)


class Ours:
    """A process that drains, and the database it drains."""

    def __init__(self, orders: Connection, conninfo: str) -> None:
        self._orders = orders
        self._conninfo = conninfo
        self.drained: list[Drained] = []

    def rate(self, values: Sequence[dict[str, Any]]) -> float:
        """Fill the queue, then have it drained."""
        run_statement(self._conninfo, "truncate")
        with opened(self._conninfo) as storage:
            client = pgjq.Client(storage)
            for start in range(0, len(values), BATCH):
                client.enqueue_many(QUEUE, [(None, value) for value in values[start : start + BATCH]])
            run_statement(self._conninfo, "vacuum")
            run_statement(self._conninfo, "checkpoint")
            self._orders.send(len(values))
            drained: Drained = self._orders.recv()
            assert client.get_queue_stats(QUEUE).completed == len(values)
        self.drained.append(drained)
        return drained.rate

    @property
    def batches(self) -> str:
        """How many jobs went into a claim and into a settle."""
        claim, settle = mean(d.claim for d in self.drained), mean(d.settle for d in self.drained)
        return f"claims of {claim:.0f}, settles of {settle:.0f}"


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure all of them by turns."""
    values = payloads(scale.drained)
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "drain"))
        coroutines = Ours(stack.enter_context(process(drain, conninfo, "coroutine")), conninfo)
        plain = Ours(stack.enter_context(process(drain, conninfo, "plain")), conninfo)
        floor = Ours(stack.enter_context(process(drain_bare, conninfo)), conninfo)
        pgqueuer = stack.enter_context(pgqueuer_worker(server))
        peer = stack.enter_context(graphile(server))
        _find_best(pgqueuer, min(TO_TRY, scale.drained))
        contenders: dict[str, Sampler] = {
            "coroutines": lambda: coroutines.rate(values),
            "pgqueuer": lambda: pgqueuer.rate(values),
            "plain": lambda: plain.rate(values),
            "floor": lambda: floor.rate(values),
        }
        if peer is not None:
            contenders["graphile"] = lambda: peer.rate(values)
        samples = interleave(contenders, scale.drains)
    what = f"coroutines, {CONCURRENCY['coroutine']} at a time; {coroutines.batches}"
    what_plain = f"plain functions, {CONCURRENCY['plain']} at a time; {plain.batches}"
    against = {
        "pgqueuer": (f"PgQueuer, {pgqueuer.settings}", PGQUEUER),
        "graphile": ("graphile-worker, local queue and batched completion", GRAPHILE),
        "floor": (f"claim and settle in a loop, {FLOOR_BATCH} at a time", None),
    }
    return [
        *(
            compare(samples, "coroutines", name, what=what, against=label, unit="jobs/s", target=target)
            for name, (label, target) in against.items()
            if name in samples
        ),
        compare(samples, "plain", "coroutines", what=what_plain, against="coroutines", unit="jobs/s", target=SAME),
        against_number(samples["coroutines"], COROUTINES, what=what, unit="jobs/s"),
        against_number(samples["plain"], PLAIN, what=what_plain, unit="jobs/s"),
    ]


def _find_best(peer: PgQueuerWorker, count: int) -> None:
    """Find the settings with which the peer is fastest here and now."""
    values = payloads(count)

    def sampler(settings: tuple[int, bool]) -> Sampler:
        def sample() -> float:
            peer.batch, peer.pooled = settings
            return peer.rate(values)

        return sample

    tried = {str(settings): settings for settings in peer.settings_to_try}
    samples = interleave({name: sampler(settings) for name, settings in tried.items()}, TRIES)
    peer.batch, peer.pooled = tried[max(tried, key=lambda name: median(samples[name]))]
