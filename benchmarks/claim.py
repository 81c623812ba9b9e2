"""Claim of 200 jobs at a backlog of a million, against the same claim at a thousand.

A claim should not notice how long the queue is. What is timed is the operation that a worker calls, promotion of due
jobs included. Four kinds of database, each of them twice, with a thousand jobs and with a million, so that a ratio
compares like with like:

* analysed: vacuumed and analysed after filling, as autovacuum would;
* analysed when empty, and autovacuum off since: the planner's statistics are wrong;
* analysed when 2,000 jobs were there and every one of them was being processed, and autovacuum off since: the planner
  has seen that nothing is ever ready;
* never analysed: there are none;

and a fifth, where the million stands behind 100,000 jobs of a higher priority, enqueued before, that are due tomorrow;
it is compared with a plain thousand.

After each claim, and outside its time, the jobs are completed and as many new ones enqueued: the backlog stays as long
as it is, and both sides have the same number of dead rows at their head.
"""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any

import pgjq
from benchmarks.databases import migrated_database, opened, run_statement
from benchmarks.jobs import QUEUE, payloads
from benchmarks.measure import Finding, Sampler, Scale, Target, compare, interleave
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.embedded import EmbeddedServer
    from pgjq.storage.base import Claimed

LIMIT = 200
SMALL = 1_000
BUSY = 2_000
DAY = 86_400.0
TARGET = Target(1.3, "at most")


@dataclass(frozen=True, slots=True)
class Case:
    """A way to prepare a database: what happens before its backlog is filled in, and what after."""

    name: str
    before: Callable[[str], None]
    after: Callable[[str], None]


class Claimer:
    """A worker that claims, completes and replaces what it completed."""

    def __init__(self, storage: pgjq.PostgresStorage) -> None:
        self._client = pgjq.Client(storage)
        self._operations = storage.operations("sync")
        self._fresh = [(None, value) for value in payloads(LIMIT)]

    def milliseconds(self, times: int) -> float:
        """Return the median time of some claims."""
        return median(self._timed_claim() for _ in range(times))

    def claim(self) -> list[Claimed]:
        """Claim a batch."""
        return drive(
            self._operations.claim([QUEUE], worker="bench", limit=LIMIT, policy=pgjq.LeasePolicy(lease=3600.0))
        )

    def _timed_claim(self) -> float:
        start = time.perf_counter()
        claimed = self.claim()
        elapsed = time.perf_counter() - start
        assert len(claimed) == LIMIT
        drive(self._operations.settle([Settlement(job.lease, Completed(b'"done"')) for job in claimed]))
        self._client.enqueue_many(QUEUE, self._fresh)
        return elapsed * 1000


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure each case, one after another: together they would not fit in a small machine's memory."""
    findings = [_compared(server, scale, case, number) for number, case in enumerate(_cases())]
    return [*findings, _with_future(server, scale)]


def _cases() -> list[Case]:
    return [
        Case("analysed", _nothing, _vacuum),
        Case("analysed when empty", _freeze_empty, _nothing),
        Case("analysed when all were processing", _freeze_busy, _nothing),
        Case("never analysed", _freeze, _nothing),
    ]


def _compared(server: EmbeddedServer, scale: Scale, case: Case, number: int) -> Finding:
    with ExitStack() as stack:
        small = stack.enter_context(_backlog(server, f"small_{number}", case, SMALL))
        large = stack.enter_context(_backlog(server, f"large_{number}", case, scale.backlog))
        return _take_turns(server, scale, small, large, f"claim of {LIMIT} of {scale.backlog:,}, {case.name}")


def _with_future(server: EmbeddedServer, scale: Scale) -> Finding:
    ahead = Case("", lambda conninfo: _fill(conninfo, scale.future, priority=10, delay=DAY), _vacuum)
    with ExitStack() as stack:
        small = stack.enter_context(_backlog(server, "small_future", Case("", _nothing, _vacuum), SMALL))
        large = stack.enter_context(_backlog(server, "large_future", ahead, scale.backlog))
        what = f"claim of {LIMIT} of {scale.backlog:,} behind {scale.future:,} due tomorrow"
        return _take_turns(server, scale, small, large, what)


def _take_turns(server: EmbeddedServer, scale: Scale, small: Claimer, large: Claimer, what: str) -> Finding:
    run_statement(server.conninfo, "checkpoint")
    contenders: dict[str, Sampler] = {
        "small": lambda: small.milliseconds(scale.claims),
        "large": lambda: large.milliseconds(scale.claims),
    }
    samples = interleave(contenders, scale.rounds)
    against = f"the same of {SMALL:,}"
    return compare(samples, "large", "small", what=what, against=against, unit="ms", target=TARGET)


@contextmanager
def _backlog(server: EmbeddedServer, name: str, case: Case, count: int) -> Generator[Claimer]:
    with migrated_database(server, name) as conninfo:
        case.before(conninfo)
        _fill(conninfo, count)
        case.after(conninfo)
        with opened(conninfo) as storage:
            yield Claimer(storage)


def _fill(conninfo: str, count: int, *, priority: int = 0, delay: float = 0.0) -> None:
    parameters: dict[str, Any] = {"queue": QUEUE, "count": count, "priority": priority, "delay": delay}
    run_statement(conninfo, "fill", parameters)


def _nothing(conninfo: str) -> None:
    del conninfo


def _vacuum(conninfo: str) -> None:
    run_statement(conninfo, "vacuum")


def _freeze(conninfo: str) -> None:
    run_statement(conninfo, "autovacuum_off")


def _freeze_empty(conninfo: str) -> None:
    _freeze(conninfo)
    run_statement(conninfo, "analyze")


def _freeze_busy(conninfo: str) -> None:
    _freeze(conninfo)
    _fill(conninfo, BUSY)
    with opened(conninfo) as storage:
        claimer = Claimer(storage)
        while claimer.claim():
            pass
    run_statement(conninfo, "analyze")
