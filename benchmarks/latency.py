"""Latency where a person waits: pickup, round trip and a bare commit, job by job in turns.

* A pickup lasts from just before a job is enqueued until its handler begins, in an idle worker of another process. The
  clock is CLOCK_MONOTONIC, which all processes of a Linux machine share.
* PgQueuer's pickup is the same with its own client and worker, on asyncpg and uvloop.
* A round trip is `enqueue_and_wait` of a no-op, in a worker of another process.
* A bare commit is one row inserted by psycopg into a table with a primary key, after the same pause as the others; a
  quick one is the same right after another, which is how people measure a disk.

Every job comes after a pause of 30 to 80 ms, so all processes sleep before it, and the contenders change with each job:
whatever else the machine does falls on all of them alike. Half of a pickup is the disk: the enqueue and the claim both
commit durably, with PgQueuer as with pgjq.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import ExitStack
from statistics import median, quantiles
from typing import TYPE_CHECKING, Any, Protocol

import pgjq
from benchmarks import pgqueuer_worker, workers
from benchmarks.databases import connect, migrated_database, opened, run_statement
from benchmarks.jobs import QUEUE, payload, random_ids
from benchmarks.measure import Finding, Scale, Target, compare
from benchmarks.pgqueuer_peer import pgqueuer
from benchmarks.processes import process

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from multiprocessing.connection import Connection

    import psycopg

    from pgjq.embedded import EmbeddedServer

PAUSE = (0.03, 0.08)
UNTIL_IDLE = 1.0
QUICK_COMMITS = 5
PICKUP, PICKUP_WORST = Target(0.8, "at most"), Target(1.0, "at most")
ROUND_TRIP = Target(1.4, "at most")
# Promised: 3 ms on a machine where a bare commit right after another takes 0.25 ms.
ROUND_TRIP_COMMITS = Target(12.0, "at most")


class Contender(Protocol):
    """Does one thing at a time; then says how many milliseconds each took."""

    def do(self, number: int) -> None: ...

    def taken(self) -> list[float]: ...


class Pickups:
    """A worker that waits, and a way to give it one job."""

    def __init__(self, worker: Connection, enqueue: Callable[[int], object]) -> None:
        self._worker = worker
        self._enqueue = enqueue
        self._enqueued: dict[int, int] = {}

    def do(self, number: int) -> None:
        self._enqueued[number] = time.monotonic_ns()
        self._enqueue(number)

    def taken(self) -> list[float]:
        time.sleep(UNTIL_IDLE)
        self._worker.send("report")
        began: dict[int, int] = self._worker.recv()
        enqueued, self._enqueued = self._enqueued, {}
        assert began.keys() == enqueued.keys()
        return [(began[number] - moment) / 1e6 for number, moment in enqueued.items()]


class Calls:
    """A call that returns when it is done."""

    def __init__(self, call: Callable[[int], object]) -> None:
        self._call = call
        self._taken: list[float] = []

    def do(self, number: int) -> None:
        start = time.perf_counter()
        self._call(number)
        self._taken.append((time.perf_counter() - start) * 1000)

    def taken(self) -> list[float]:
        taken, self._taken = self._taken, []
        return taken


class QuickCommits(Calls):
    """Commits right after one another."""

    def do(self, number: int) -> None:
        for _ in range(QUICK_COMMITS):
            super().do(number)
        self._taken[-QUICK_COMMITS:] = self._taken[1 - QUICK_COMMITS :]  # The first one woke the server up.


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure all of them, job by job."""
    with ExitStack() as stack:
        contenders = _contenders(stack, server)
        rounds = [_round(contenders, scale.pickups) for _ in range(scale.drains + 1)][1:]
    p50 = {name: [median(taken[name]) for taken in rounds] for name in contenders}
    p99 = {name: [_worst(taken[name]) for taken in rounds] for name in contenders}
    p50["own pickup and a commit"] = [a + b for a, b in zip(p50["ours"], p50["commit"], strict=True)]
    p50["two commits"] = [2 * commit for commit in p50["commit"]]
    rows: Sequence[tuple[str, str, str, str, Mapping[str, Sequence[float]], Target | None]] = (
        ("pickup by an idle worker, p50", "PgQueuer", "ours", "pgqueuer", p50, PICKUP),
        ("pickup by an idle worker, p99", "PgQueuer", "ours", "pgqueuer", p99, PICKUP_WORST),
        ("pickup by an idle worker, p50", "two bare commits, the floor", "ours", "two commits", p50, None),
        ("round trip, p50", "own pickup and a bare commit", "round trip", "own pickup and a commit", p50, ROUND_TRIP),
        ("round trip, p50", "a bare commit right after another", "round trip", "quick", p50, ROUND_TRIP_COMMITS),
    )
    return [
        compare(samples, ours, theirs, what=what, against=against, unit="ms", target=target)
        for what, against, ours, theirs, samples, target in rows
    ]


def _round(contenders: Mapping[str, Contender], count: int) -> dict[str, list[float]]:
    names = list(contenders)
    for number in range(count):
        random.shuffle(names)
        for name in names:
            time.sleep(random.uniform(*PAUSE))  # noqa: S311
            contenders[name].do(number)
    return {name: contender.taken() for name, contender in contenders.items()}


def _worst(taken: Sequence[float]) -> float:
    return quantiles(taken, n=100, method="inclusive")[98]


def _contenders(stack: ExitStack, server: EmbeddedServer) -> dict[str, Contender]:
    conninfo = stack.enter_context(migrated_database(server, "pickup"))
    worker = stack.enter_context(process(workers.note_starts, conninfo))
    client = pgjq.Client(stack.enter_context(opened(conninfo)))
    peer = stack.enter_context(pgqueuer(server))
    peer_worker = stack.enter_context(process(pgqueuer_worker.note_starts, peer.conninfo))
    answering = stack.enter_context(migrated_database(server, "latency_round_trip"))
    echo = stack.enter_context(process(workers.echo, answering))
    asking = pgjq.Client(stack.enter_context(opened(answering)))
    run_statement(conninfo, "bare_table")
    bare = stack.enter_context(connect(conninfo))
    for started in (worker, peer_worker, echo):
        assert started.recv() == "working"
    return {
        "ours": Pickups(worker, lambda number: client.enqueue(QUEUE, None, number)),
        "pgqueuer": Pickups(peer_worker, lambda number: peer.enqueue_one(str(number).encode())),
        "round trip": Calls(lambda number: asking.enqueue_and_wait(QUEUE, None, number)),
        "commit": Calls(lambda number: _insert(bare, number)),
        "quick": QuickCommits(lambda number: _insert(bare, number)),
    }


def _insert(bare: psycopg.Connection[Any], number: int) -> None:
    data = json.dumps(payload(number), separators=(",", ":")).encode()
    bare.execute("insert into bare (id, payload) values (%s, %s)", (random_ids(1)[0], data))
