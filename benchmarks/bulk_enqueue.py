"""Bulk enqueue: with the caller's ids against PgQueuer and graphile-worker, with generated ids against raw COPY.

With the caller's ids pgjq promises that no id is there twice; PgQueuer, the fastest peer, promises nothing of the kind
here. Both begin with Python values, use one connection, and commit each call durably. PgQueuer runs with the same batch
size as pgjq and once more with whichever size suits it best, found by trying in the same run. graphile-worker runs the
statement of its own bulk call from Node, and is left out where Node and npm are missing.

With generated ids nothing can be taken, and the floor is COPY into the same two tables with all their indexes, in one
transaction a batch. The floor is low on purpose: its rows are text that was rendered before the clock started, so it
has no ids to make, no JSON to write and no numbers to draw, it answers nothing and wakes nobody. A second floor begins,
as pgjq does, with Python values, and is what one would write by hand; it is shown without a target.

Tables are emptied before each sample. The caller's ids are random, the hardest case for the index over them.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from statistics import median
from typing import TYPE_CHECKING, Any

import pgjq
from benchmarks.databases import migrated_database, opened, run_statement
from benchmarks.graphile_peer import graphile
from benchmarks.jobs import QUEUE, payloads, random_ids
from benchmarks.measure import Finding, Sampler, Samples, Scale, Target, compare, interleave, jobs_per_second
from benchmarks.pgqueuer_peer import PgQueuer, pgqueuer
from benchmarks.raw_copy import RawCopy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.graphile_peer import Graphile
    from pgjq.embedded import EmbeddedServer

BATCH = 1_000
SIZES_TO_TRY = (250, 1_000, 4_000, 20_000)
DEDUPLICATED = Target(1.3)
MADE = Target(0.5)


class Pgjq:
    """A client on a database that it may empty."""

    def __init__(self, client: pgjq.Client, conninfo: str) -> None:
        self._client = client
        self._conninfo = conninfo

    def rate(self, values: Sequence[dict[str, Any]], batch: int, *, made: bool) -> float:
        """Empty the tables, then time an enqueue of everything in batches."""
        run_statement(self._conninfo, "truncate")
        ids: Sequence[str | None] = [None] * len(values) if made else random_ids(len(values))
        jobs = list(zip(ids, values, strict=True))
        rate = jobs_per_second(len(jobs), lambda: self._enqueue(jobs, batch))
        assert self._client.get_queue_stats(QUEUE).ready == len(jobs)
        return rate

    def _enqueue(self, jobs: Sequence[tuple[str | None, Any]], batch: int) -> None:
        for start in range(0, len(jobs), batch):
            self._client.enqueue_many(QUEUE, jobs[start : start + batch])


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both, in calls of a thousand and in one call."""
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "bulk"))
        ours = Pgjq(pgjq.Client(stack.enter_context(opened(conninfo))), conninfo)
        peer = stack.enter_context(pgqueuer(server))
        floor = stack.enter_context(closing(RawCopy(stack.enter_context(migrated_database(server, "floor")))))
        node = stack.enter_context(graphile(server))
        best = _best_batch(peer, scale)
        return [
            *_deduplicated(ours, peer, node, scale, best),
            *_in_one_call(ours, peer, scale, best),
            *_made(ours, floor, scale.bulk, BATCH, scale.rounds),
            *_made(ours, floor, scale.one_call, scale.one_call, scale.rounds),
        ]


def _best_batch(peer: PgQueuer, scale: Scale) -> int:
    """Find the batch size at which the peer is fastest here and now."""
    values = payloads(scale.bulk)

    def sampler(size: int) -> Sampler:
        return lambda: peer.rate(values, size)

    samples = interleave({str(size): sampler(size) for size in SIZES_TO_TRY}, 3)
    return max(SIZES_TO_TRY, key=lambda size: median(samples[str(size)]))


def _deduplicated(ours: Pgjq, peer: PgQueuer, node: Graphile | None, scale: Scale, best: int) -> list[Finding]:
    values = payloads(scale.bulk)
    contenders: dict[str, Sampler] = {
        "ours": lambda: ours.rate(values, BATCH, made=False),
        "same": lambda: peer.rate(values, BATCH),
        "best": lambda: peer.rate(values, best),
        "generated": lambda: ours.rate(values, BATCH, made=True),
    }
    if node is not None:
        contenders["graphile"] = lambda: node.enqueue_rate(len(values), BATCH)
    samples = interleave(contenders, scale.rounds)
    found = [_against_peer(samples, BATCH, "same", BATCH), _against_peer(samples, BATCH, "best", best)]
    for ours_name, what in (("ours", "caller's ids, deduplicated"), ("generated", "generated ids")):
        for theirs, against in (("same", "PgQueuer"), ("graphile", "graphile-worker")):
            if theirs in samples and (ours_name, theirs) != ("ours", "same"):
                found.append(
                    compare(
                        samples,
                        ours_name,
                        theirs,
                        what=f"{what}, {BATCH:,} a call",
                        against=f"{against}, {BATCH:,} a call",
                        unit="jobs/s",
                        target=DEDUPLICATED,
                    )
                )
    return found


def _in_one_call(ours: Pgjq, peer: PgQueuer, scale: Scale, best: int) -> list[Finding]:
    values = payloads(scale.one_call)
    contenders: dict[str, Sampler] = {
        "ours": lambda: ours.rate(values, len(values), made=False),
        "best": lambda: peer.rate(values, best),
    }
    return [_against_peer(interleave(contenders, scale.rounds), len(values), "best", best)]


def _against_peer(samples: Samples, batch: int, theirs: str, their_batch: int) -> Finding:
    label = "its best, " if theirs == "best" else ""
    return compare(
        samples,
        "ours",
        theirs,
        what=f"caller's ids, deduplicated, {batch:,} a call",
        against=f"PgQueuer, {label}{their_batch:,} a call",
        unit="jobs/s",
        target=DEDUPLICATED,
    )


def _made(ours: Pgjq, floor: RawCopy, count: int, batch: int, rounds: int) -> list[Finding]:
    values = payloads(count)
    contenders: dict[str, Sampler] = {
        "ours": lambda: ours.rate(values, batch, made=True),
        "rendered": lambda: floor.rendered_rate(values, batch),
        "by hand": lambda: floor.rate(values, batch),
    }
    samples = interleave(contenders, rounds)
    return [
        _against_floor(samples, batch, "rendered", "raw COPY of ready-made text", MADE),
        _against_floor(samples, batch, "by hand", "raw COPY from Python values", None),
    ]


def _against_floor(samples: Samples, batch: int, theirs: str, against: str, target: Target | None) -> Finding:
    what = f"generated ids, {batch:,} a call"
    return compare(samples, "ours", theirs, what=what, against=against, unit="jobs/s", target=target)
