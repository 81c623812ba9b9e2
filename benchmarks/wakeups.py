"""Enqueue by eight writers with wake-ups on, against the same with wake-ups off.

A commit that notifies takes a lock of the whole server, so telling sleeping workers can cost those who enqueue most of
their speed. In one of two databases `pgjq.wake` does nothing; else the two are alike, and the same eight processes
write into them by turns, one job a commit. Three situations:

* no worker: nothing is notified;
* a worker sleeps and works: it waits for work, claims up to 200 jobs, completes them, and waits again, in both
  databases; without wake-ups it finds work by looking, as it would behind a transaction pooler;
* a sleeper always: a session says that it sleeps and cannot be woken, so that every commit notifies. No worker
  does that; the figure has no target, and shows what is at stake.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from benchmarks.databases import connect, migrated_database, run_statement, statement
from benchmarks.measure import Finding, Sampler, Scale, Target, compare, interleave
from benchmarks.writers import Crew, crew

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.embedded import EmbeddedServer

WRITERS = 8
TARGET = Target(0.9)


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure the three situations."""
    with ExitStack() as stack:
        conninfos = [stack.enter_context(migrated_database(server, name)) for name in ("wake_on", "wake_off")]
        run_statement(conninfos[1], "no_wake")
        in_flight = stack.enter_context(crew(conninfos, WRITERS))
        return [
            _compared(in_flight, conninfos, scale, "no worker"),
            _compared(in_flight, conninfos, scale, "a worker sleeps and works", with_worker=True),
            _with_sleepers(in_flight, conninfos, scale),
        ]


def _with_sleepers(in_flight: Crew, conninfos: Sequence[str], scale: Scale) -> Finding:
    with ExitStack() as stack:
        for conninfo in conninfos:
            stack.enter_context(connect(conninfo)).execute(statement("fall_asleep"))
        return _compared(in_flight, conninfos, scale, "a sleeper always", target=None)


def _compared(
    in_flight: Crew,
    conninfos: Sequence[str],
    scale: Scale,
    situation: str,
    *,
    with_worker: bool = False,
    target: Target | None = TARGET,
) -> Finding:
    def sampler(database: int) -> Sampler:
        def sample() -> float:
            run_statement(conninfos[database], "truncate")
            return in_flight.rate(database, scale.seconds, with_worker=with_worker)

        return sample

    samples = interleave({"on": sampler(0), "off": sampler(1)}, scale.rounds)
    what, against = f"{WRITERS} writers, {situation}", "wake-ups off"
    return compare(samples, "on", "off", what=what, against=against, unit="jobs/s", target=target)
