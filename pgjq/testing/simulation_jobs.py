"""The expected state of a simulated job, recorded from replies, and its workers' beliefs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pgjq.lease import LeasePolicy, Stall
from pgjq.outcome import Cancelled, Completed, Failed, Failing

if TYPE_CHECKING:
    from pgjq.job import State
    from pgjq.lease import Action
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Lease

UNCLAIMED = LeasePolicy()


@dataclass(slots=True, eq=False)
class JobHistory:
    """The history of a job. Times are seconds since the start of the simulation."""

    max_attempts: int
    state: State = "queued"
    attempts: int = 0
    stalled: int = 0
    lease: int = 0
    stalled_on: tuple[str, ...] = ()
    checkpoint: bytes | None = None
    cancel_requested: bool = False
    worker: str = ""
    policy: LeasePolicy = UNCLAIMED
    claimed_at: float = 0.0
    renewed_at: float = 0.0

    @property
    def expire_at(self) -> float | None:
        return None if self.policy.expire is None else self.claimed_at + self.policy.expire

    @property
    def locked_until(self) -> float | None:
        lease = None if self.policy.lease is None else self.renewed_at + self.policy.lease
        return min((t for t in (lease, self.expire_at) if t is not None), default=None)

    @property
    def stall(self) -> Stall:
        """The facts that a reaper decides by."""
        return Stall(
            self.cancel_requested,
            self.attempts,
            self.max_attempts,
            self.stalled,
            self.policy.max_stalled,
            self.policy.reap_exhausted,
        )

    def start(self, worker: str, policy: LeasePolicy, now: float) -> None:
        """Record a claim."""
        self.lease, self.attempts = self.lease + 1, self.attempts + 1
        self.state, self.worker, self.policy = "processing", worker, policy
        self.claimed_at = self.renewed_at = now

    def end(self, outcome: Outcome) -> State:
        """Record a settlement under the valid lease; return the state that it must lead to."""
        match Cancelled() if self.cancel_requested else outcome:
            case Completed():
                self.state = "completed"
            case Failed():
                self.state = "failed"
            case Cancelled():
                self.state = "cancelled"
            case Failing():
                self.state = "failing"
            case _:
                self.attempts -= 1
                self.state = "failing" if self.attempts else "queued"
        return self.state

    def take_back(self, action: Action) -> None:
        """Record what a reaper did with the job."""
        if action != "cancelled":
            self.stalled += 1
            self.stalled_on = (*self.stalled_on, self.worker)
        self.state = "failing" if action == "recovered" else action

    def is_held_by(self, lease: Lease) -> bool:
        """Return whether a lease is the valid one."""
        return self.state == "processing" and self.lease == lease.number

    def is_overdue(self, now: float, patience: float) -> bool:
        """Return whether a reaper with this `stale_age` must reap the job."""
        if self.state != "processing" or self.locked_until is None or self.locked_until > now:
            return False
        return self.locked_until <= now - patience or (self.expire_at is not None and self.expire_at <= now)


@dataclass(slots=True, eq=False)
class HeldLease:
    """A lease that a worker believes to hold, until a time."""

    lease: Lease
    trusted_until: float | None
    seconds: float | None
