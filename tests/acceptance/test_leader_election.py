"""Ten reapers, killed, stopped and sent away at random: never two of them lead, and soon there is one again.

PGJQ_TEST_KILLS=300 makes a minute or two of it; the normal run has a few seconds.
"""

from __future__ import annotations

import os
import random
import signal
import time
from itertools import pairwise
from typing import TYPE_CHECKING

from pgjq import LeaderElection

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from tests.acceptance.processes import Processes

REAPERS = 10
KILLS = int(os.environ.get("PGJQ_TEST_KILLS", "12"))
ELECTION = LeaderElection(enabled=True, lock_ttl=0.6, renewal_interval=0.2, acquire_retry_interval=0.1)
# Samples further apart than this are not taken for one term.
TERM = 0.1


def test_never_two_lead_and_soon_there_is_one_again(
    processes: Processes, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    seed = request.config.getoption("randomly_seed", 0)
    print(f"to make the same trouble again: --randomly-seed={seed}")  # noqa: T201
    chance = random.Random(seed)  # noqa: S311
    book = tmp_path / "leaders"
    book.touch()
    pids = {processes.candidate(ELECTION, book) for _ in range(REAPERS)}
    for _ in range(KILLS):
        leader = leads_now(processes, book, pids)
        trouble = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGSTOP])
        victim = leader if chance.random() < 0.8 else chance.choice(sorted(pids))
        processes.signal(victim, trouble)
        if trouble == signal.SIGSTOP:
            if victim == leader:
                leads_now(processes, book, pids - {leader})
            processes.signal(victim, signal.SIGCONT)
        else:
            pids.discard(victim)
            pids.add(processes.candidate(ELECTION, book))
    leads_now(processes, book, pids)
    terms = sorted(read_terms(book))
    assert len(terms) > KILLS // 3
    overlaps = [(one, other) for one, other in pairwise(terms) if other[0] <= one[1]]
    assert overlaps == []


def leads_now(processes: Processes, book: Path, pids: set[int]) -> int:
    """Wait until one of these leads, from now on, and say which."""
    since = time.monotonic()
    found: list[int] = []

    def look() -> bool:
        nonlocal found
        found = [pid for at, pid in samples(book) if at > since and pid in pids]
        return bool(found)

    processes.until(look)
    return found[-1]


def samples(book: Path) -> list[tuple[float, int]]:
    lines = book.read_text().splitlines(keepends=True)
    return [(float(at), int(pid)) for at, pid in (line.split() for line in lines if line.endswith("\n"))]


def read_terms(book: Path) -> list[tuple[float, float, int]]:
    """Put samples together into terms: first and last moment that a candidate knew to lead."""
    terms: list[tuple[float, float, int]] = []
    by_pid: dict[int, list[float]] = {}
    for at, pid in samples(book):
        by_pid.setdefault(pid, []).append(at)
    for pid, times in by_pid.items():
        start = last = times[0]
        for at in times[1:]:
            if at - last > TERM:
                terms.append((start, last, pid))
                start = at
            last = at
        terms.append((start, last, pid))
    return terms
