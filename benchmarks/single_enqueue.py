"""Single durable enqueue against PgQueuer and against a bare one-row insert.

One job a commit, on one connection, waiting for each commit to reach the disk: `Client.enqueue` with an id of the
caller's, and psycopg inserting the same bytes under the same kind of id into a table with nothing but a primary key.
The insert is what anybody would pay for a durable row from Python, prepared by psycopg after its fifth run as psycopg
does by default. pgjq writes two rows into two tables and four indexes, finds out whether the id is taken, and looks for
workers that sleep.

PgQueuer enqueues with its own client, on asyncpg and uvloop, one job a call; it deduplicates nothing here. Its caller
makes the JSON, within the clock as for pgjq.

The disk is most of all three, so the rounds are short and many: its moods then fall on all alike.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pgjq
from benchmarks.databases import connect, migrated_database, opened, run_statement
from benchmarks.jobs import QUEUE, payloads, random_ids
from benchmarks.measure import Finding, Sampler, Scale, Target, compare, interleave, jobs_per_second
from benchmarks.pgqueuer_peer import pgqueuer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import psycopg

    from pgjq.embedded import EmbeddedServer

BARE = Target(0.65)
PGQUEUER = Target(1.05)
ROUNDS_TIMES = 3


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure it."""
    values = payloads(scale.singles)
    with ExitStack() as stack:
        conninfo = stack.enter_context(migrated_database(server, "single"))
        run_statement(conninfo, "bare_table")
        client = pgjq.Client(stack.enter_context(opened(conninfo)))
        bare = stack.enter_context(connect(conninfo))
        peer = stack.enter_context(pgqueuer(server))
        contenders: dict[str, Sampler] = {
            "ours": lambda: _rate_of_enqueue(client, values),
            "pgqueuer": lambda: peer.single_rate(values),
            "bare": lambda: _rate_of_insert(bare, values),
        }
        samples = interleave(contenders, scale.rounds * ROUNDS_TIMES)
    what = "Client.enqueue, one a commit, deduplicated"
    return [
        compare(samples, "ours", "pgqueuer", what=what, against="PgQueuer", unit="jobs/s", target=PGQUEUER),
        compare(samples, "ours", "bare", what=what, against="bare insert by psycopg", unit="jobs/s", target=BARE),
    ]


def _rate_of_enqueue(client: pgjq.Client, values: Sequence[dict[str, Any]]) -> float:
    jobs = list(zip(random_ids(len(values)), values, strict=True))

    def enqueue() -> None:
        for job_id, value in jobs:
            client.enqueue(QUEUE, job_id, value)

    return jobs_per_second(len(jobs), enqueue)


def _rate_of_insert(connection: psycopg.Connection[Any], values: Sequence[dict[str, Any]]) -> float:
    jobs = list(zip(random_ids(len(values)), values, strict=True))

    def insert() -> None:
        for job_id, value in jobs:
            data = json.dumps(value, separators=(",", ":")).encode()
            connection.execute("insert into bare (id, payload) values (%s, %s)", (job_id, data))

    return jobs_per_second(len(jobs), insert)
