"""Lost replies in the simulation: of claims and settlements, and jobs given back unrun.

A worker whose claim was not answered asks for the jobs of that claim, at once or much later, and runs or releases those
that it still holds; one that crashed never asks. A worker whose settlement was not answered settles again, which must
change nothing, and then reads how its runs ended. The chronicle records what the storage did, as always.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pgjq.blocking import drive
from pgjq.outcome import Released
from pgjq.storage.base import Settlement
from pgjq.storage.memory import MemoryStorage
from pgjq.testing.clock import ManualClock
from pgjq.testing.simulation import Simulation
from pgjq.testing.simulation_choices import OUTCOMES, POLICIES, WORKERS
from pgjq.testing.simulation_jobs import HeldLease

if TYPE_CHECKING:
    from pgjq.storage.base import Claimed


@dataclass(frozen=True)
class UnansweredClaim:
    """A claim whose reply was lost, what it took, and when the worker had asked."""

    worker: str
    claim_id: int
    asked_at: float
    taken: list[Claimed] = field(default_factory=list["Claimed"])


class LossySimulation(Simulation):
    """A history in which replies get lost."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unanswered: list[UnansweredClaim] = []
        self.weights |= {
            self.lose_claim: 4,
            self.find_claim: 5,
            self.lose_settlement: 3,
            self.release_unrun: 3,
        }

    def lose_claim(self) -> None:
        """Let a worker claim without getting an answer."""
        worker, policy = self.chance.choice(WORKERS), self.chance.choice(POLICIES)
        limit, claim_id = self.chance.randint(1, 2), self.chance.getrandbits(63)
        if worker in self.frozen:
            return
        asked = UnansweredClaim(worker, claim_id, self.now)
        for job in drive(self.ops.claim([self.queue], worker=worker, limit=limit, policy=policy, claim_id=claim_id)):
            life = self.lives[job.lease.id]
            assert life.state in ("queued", "failing"), f"{job.lease} was claimed, but is {life.state}"
            life.start(worker, policy, self.now)
            asked.taken.append(job)
        self.unanswered.append(asked)
        self._note("lose claim", worker, sorted((job.lease.id, job.lease.number) for job in asked.taken))

    def find_claim(self) -> None:
        """Let a worker find the jobs of an unanswered claim; it runs them, or gives them back."""
        asked = next((claim for claim in self.unanswered if claim.worker not in self.frozen), None)
        if asked is None:
            return
        self.unanswered.remove(asked)
        found = drive(self.ops.find_claimed([self.queue], asked.claim_id))
        held = {job.lease[:3]: job for job in asked.taken if self._is_valid(job.lease)}
        assert {job.lease[:3] for job in found} == set(held), f"found {found}, held are {held}"
        self._note("find claim", asked.worker, sorted((job.lease.id, job.lease.number) for job in found))
        if self.chance.random() < 0.3:
            self._settle([Settlement(job.lease, Released()) for job in found])
            return
        for job in found:  # Trust counts from when the worker asked, however late it learns what it got.
            trust = self._trust(job.lease_seconds)
            trusted_until = None if trust is None else trust - (self.now - asked.asked_at)
            self.in_flight[asked.worker].append(HeldLease(job.lease, trusted_until, job.lease_seconds))

    def lose_settlement(self) -> None:
        """End runs without getting an answer: settle again, and read how they ended."""
        worker = self.chance.choice(WORKERS)
        if worker in self.frozen or not self.in_flight[worker]:
            return
        settlements = [Settlement(held.lease, self.chance.choice(OUTCOMES)) for held in self.in_flight[worker]]
        self.in_flight[worker] = []
        expected = [self._ended(settlement) for settlement in settlements]
        drive(self.ops.settle(settlements))
        again = drive(self.ops.settle(settlements))
        assert [answer.state for answer in again] == [None] * len(again), f"settled twice: {again}"
        found = drive(self.ops.find_settled(settlements))
        for settlement, answer, state in zip(settlements, found, expected, strict=True):
            # A reaper may have ended the run as cancelled, which a settlement would have done as well.
            cancelled = state is None and self.lives[settlement.lease.id].state == "cancelled"
            assert answer.state == state or (cancelled and answer.state == "cancelled"), f"{answer}, settled as {state}"
        self._note("lose settlement", [(s.lease.id, state) for s, state in zip(settlements, expected, strict=True)])

    def release_unrun(self) -> None:
        """Claim ahead and give all back at once, as a stopping worker does with unstarted jobs."""
        worker = self.chance.choice(WORKERS)
        claimed = self._claim(worker, 2, self.chance.choice(POLICIES))
        if claimed:
            ours = {job.lease[:3] for job in claimed}
            self.in_flight[worker] = [held for held in self.in_flight[worker] if held.lease[:3] not in ours]
            self._settle([Settlement(job.lease, Released()) for job in claimed])

    def crash(self) -> None:
        """Lose the state of a worker, with the claims that it has not asked for."""
        before = {worker: list(held) for worker, held in self.in_flight.items()}
        super().crash()
        crashed = {worker for worker, held in before.items() if held and not self.in_flight[worker]}
        self.unanswered = [claim for claim in self.unanswered if claim.worker not in crashed]


def play_lossy(seed: int) -> list[Any]:
    """Play one seed with lost replies in memory; an error names the seed."""
    clock = ManualClock()
    try:
        return LossySimulation(seed, MemoryStorage(clock=clock), clock).play()
    except Exception as error:
        error.add_note(
            f"seed {seed} with lost replies fails; again: python -m pgjq.testing --lost-replies --seed {seed}"
        )
        raise
