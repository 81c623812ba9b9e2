"""What the policies cost: draining a backlog of many keys, against the standard policy in the same run.

Drained by claiming and settling 500 at a time on one connection, so that what is compared is the storage and not the
handlers. A strict queue has ten jobs of each key, once in turn and once all of a key together, which is the hard case:
nine of ten jobs that a claim meets have to be held and woken. `stately` and `exclusive` take one queued job of a key,
so there the backlog is as long as there are keys.

The last figure is the time of a claim in a queue with very many keys that failed jobs block, against the same claim
without them.
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
from benchmarks.measure import Finding, Sampler, Scale, Target, compare, interleave, jobs_per_second
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.embedded import EmbeddedServer
    from pgjq.policy import PolicyName
    from pgjq.storage.base import Claimed

BATCH = 500
LIMIT = 200
FEW_KEYS = 1_000
STRICT = Target(0.4)
OTHERS = Target(0.5)
FLAT = Target(1.3, "at most")


@dataclass(frozen=True, slots=True)
class Case:
    """A queue, how many jobs and keys it has, and whether a key's jobs stand together."""

    policy: PolicyName
    count: int
    keys: int
    together: bool = False

    @property
    def name(self) -> str:
        """What is measured."""
        order = "a key's together" if self.together else "keys in turn"
        return f"{self.policy}, {self.count:,} jobs of {self.keys:,} keys, {order}"


class Drain:
    """A database of one queue that is filled and drained again and again."""

    def __init__(self, conninfo: str, case: Case) -> None:
        self._conninfo = conninfo
        self._case = case
        with opened(conninfo) as storage:
            pgjq.Client(storage).create_queue(QUEUE, policy=case.policy)

    def rate(self) -> float:
        """Fill the queue, then drain it."""
        run_statement(self._conninfo, "truncate")
        case = self._case
        parameters: dict[str, Any] = {
            "queue": QUEUE, "count": case.count, "keys": case.keys, "together": case.together,
        }  # fmt: skip
        run_statement(self._conninfo, "fill_keys", parameters)
        run_statement(self._conninfo, "vacuum")
        run_statement(self._conninfo, "checkpoint")
        with opened(self._conninfo) as storage:
            return jobs_per_second(case.count, lambda: self._drain(storage))

    def _drain(self, storage: pgjq.PostgresStorage) -> None:
        operations, left = storage.operations("sync"), self._case.count
        while left:
            claimed = drive(operations.claim([QUEUE], worker="bench", limit=BATCH, policy=pgjq.LeasePolicy()))
            assert claimed
            drive(operations.settle([Settlement(job.lease, Completed(b'"done"')) for job in claimed]))
            left -= len(claimed)


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure each policy beside the standard one, and the claim beside blocked keys."""
    many, keys = scale.drained, scale.drained // 10
    strict = [Case("key_strict_fifo", many, keys), Case("key_strict_fifo", many, keys, together=True)]
    findings = [_compared(server, scale, Case("standard", many, keys), strict, STRICT)]
    findings.append(
        _compared(server, scale, Case("standard", many, FEW_KEYS), [Case("singleton", many, FEW_KEYS)], OTHERS)
    )
    limited = [Case("stately", FEW_KEYS, FEW_KEYS), Case("exclusive", FEW_KEYS, FEW_KEYS)]
    findings.append(_compared(server, scale, Case("standard", FEW_KEYS, FEW_KEYS), limited, OTHERS))
    return [finding for group in findings for finding in group] + [_blocked(server, scale)]


def _compared(server: EmbeddedServer, scale: Scale, standard: Case, cases: list[Case], target: Target) -> list[Finding]:
    with ExitStack() as stack:
        contenders: dict[str, Sampler] = {}
        for number, case in enumerate([standard, *cases]):
            conninfo = stack.enter_context(migrated_database(server, f"policy_{number}"))
            contenders[case.name] = Drain(conninfo, case).rate
        samples = interleave(contenders, scale.drains)
    return [
        compare(samples, case.name, standard.name, what=case.name, against="standard", unit="jobs/s", target=target)
        for case in cases
    ]


def _blocked(server: EmbeddedServer, scale: Scale) -> Finding:
    with ExitStack() as stack:
        free = stack.enter_context(_claimer(server, "free", 0))
        blocked = stack.enter_context(_claimer(server, "blocked", scale.blocked))
        samples = interleave(
            {"free": lambda: free.milliseconds(scale.claims), "blocked": lambda: blocked.milliseconds(scale.claims)},
            scale.rounds,
        )
    what = f"claim of {LIMIT} in strict order beside {scale.blocked:,} blocked keys"
    return compare(samples, "blocked", "free", what=what, against="the same without them", unit="ms", target=FLAT)


class Claimer:
    """Claims from a strict queue, completes and replaces what it completed."""

    def __init__(self, storage: pgjq.PostgresStorage) -> None:
        self._client = pgjq.Client(storage)
        self._operations = storage.operations("sync")
        self._fresh = [pgjq.NewJob(None, value, singleton_key=f"free-{n}") for n, value in enumerate(payloads(LIMIT))]

    def hold(self) -> None:
        """Let claims hold everything that is blocked, once for all, and then enqueue what is not."""
        while self._claim() or drive(self._operations.wait_for_work([QUEUE], 0.0)):
            continue
        self._client.enqueue_many(QUEUE, self._fresh)

    def milliseconds(self, times: int) -> float:
        """Return the median time of some claims."""
        return median(self._timed_claim() for _ in range(times))

    def _timed_claim(self) -> float:
        start = time.perf_counter()
        claimed = self._claim()
        elapsed = time.perf_counter() - start
        assert len(claimed) == LIMIT
        drive(self._operations.settle([Settlement(job.lease, Completed(b'"done"')) for job in claimed]))
        self._client.enqueue_many(QUEUE, self._fresh)
        return elapsed * 1000

    def _claim(self) -> list[Claimed]:
        policy = pgjq.LeasePolicy(lease=3600.0)
        return drive(self._operations.claim([QUEUE], worker="bench", limit=LIMIT, policy=policy))


@contextmanager
def _claimer(server: EmbeddedServer, name: str, blocked: int) -> Generator[Claimer]:
    with migrated_database(server, name) as conninfo, opened(conninfo) as storage:
        pgjq.Client(storage).create_queue(QUEUE, policy="key_strict_fifo")
        run_statement(conninfo, "block_keys", {"queue": QUEUE, "keys": blocked})
        claimer = Claimer(storage)
        claimer.hold()
        run_statement(conninfo, "vacuum")
        yield claimer
