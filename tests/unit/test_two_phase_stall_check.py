"""The two-phase stall check: a job that was active at one check and not extended until the next is stalled.

On one clock that is the same as a lease as long as the time between the checks. Here both look at the same jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st

from pgjq import LeasePolicy, MemoryStorage, NewJob
from pgjq.blocking import drive
from pgjq.job_settings import settings as resolve
from pgjq.options import Submission
from pgjq.testing import ManualClock

if TYPE_CHECKING:
    from pgjq.storage.base import Claimed

INTERVAL = 30
JOBS = ["a", "b", "c"]
POLICY = LeasePolicy.stall(interval=INTERVAL, max_count=1000)

# What happens before each check: seconds go by, then a job is claimed, or a job's lock is extended.
happenings = st.lists(
    st.tuples(st.integers(1, INTERVAL), st.sampled_from(["claim", "extend"]), st.sampled_from(JOBS)), max_size=5
)


class TwoPhases:
    """The two-phase check: a set of candidates, which extending a lock leaves."""

    def __init__(self) -> None:
        self.active: set[str] = set()
        self.candidates: set[str] = set()

    def claim(self, job: str) -> None:
        self.active.add(job)

    def extend(self, job: str) -> None:
        self.candidates.discard(job)

    def check(self) -> set[str]:
        stalled = self.candidates & self.active
        self.active -= stalled
        self.candidates = set(self.active)
        return stalled


@settings(deadline=None, max_examples=300)
@given(st.lists(happenings, min_size=1, max_size=8))
def test_the_two_phase_check_and_the_lease_find_the_same_jobs_at_the_same_checks(
    rounds: list[list[tuple[int, str, str]]],
) -> None:
    clock, model = ManualClock(), TwoPhases()
    ops = MemoryStorage(clock=clock).operations("sync")
    drive(ops.enqueue("q", [Submission(job, b"", resolve(NewJob(job, None))) for job in JOBS]))
    held: dict[str, Claimed] = {}
    for happening in rounds:
        left = INTERVAL
        for seconds, what, job in happening:
            if seconds > left:
                continue
            clock.advance(seconds)
            left -= seconds
            if what == "claim":
                for claimed in drive(ops.claim(["q"], worker="ann", limit=1, policy=POLICY)):
                    held[claimed.lease.id] = claimed
                    model.claim(claimed.lease.id)
            elif job in held:
                drive(ops.heartbeat([held[job].lease]))
                model.extend(job)
        clock.advance(left)
        reaped = {stalled.id for stalled in drive(ops.reap())}
        assert reaped == model.check()
        for job in reaped:
            del held[job]
