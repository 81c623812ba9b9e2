"""Leases: how long a worker may hold a job, and what happens to a job whose worker did not come back.

A claim gives a job to one worker until `locked_until`. Two independent deadlines end that: the lease (liveness: moved
ahead by every heartbeat) and the expiry (the longest that one attempt may take, heartbeats or not). `locked_until` is
always the earlier of the two, so a reaper looks at one column. `judge` is the whole decision about a job that passed
it, as a pure function: every storage reaps alike because all of them ask it, or, where the decision is made inside the
server, are tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from pgjq.errors import ValidationError
from pgjq.options import seconds, whole

if TYPE_CHECKING:
    from pgjq.job import Action

ReapExhausted = Literal["fail", "requeue"]


@dataclass(frozen=True)
class LeasePolicy:
    """What a worker asks for when it claims, and what a reaper goes by. Durations are seconds."""

    lease: float | None = 30.0
    heartbeat: float | None = 10.0
    expire: float | None = 900.0
    stale_age: float = 0.0
    reap_interval: float = 5.0
    max_stalled: int | None = None
    reap_exhausted: ReapExhausted = "fail"

    def __post_init__(self) -> None:
        """Refuse numbers that cannot work together, and say which."""
        for name in ("lease", "heartbeat", "expire"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, seconds(name, getattr(self, name), above=0))
        for name in ("stale_age", "reap_interval"):
            object.__setattr__(self, name, seconds(name, getattr(self, name), at_least=0))
        self._check_heartbeat()
        if self.max_stalled is not None:
            whole("max_stalled", self.max_stalled, 0)
        if self.reap_exhausted not in ("fail", "requeue"):
            raise ValidationError(f'reap_exhausted must be "fail" or "requeue", not {self.reap_exhausted!r}')

    def _check_heartbeat(self) -> None:
        if self.lease is not None and self.heartbeat is not None and self.heartbeat > self.lease / 2:
            raise ValidationError(
                f"heartbeat={self.heartbeat:g} is more than half of lease={self.lease:g}: "
                "one late renewal would lose the job; use a third of the lease"
            )


@dataclass(frozen=True, slots=True)
class Stall:
    """The facts about a job whose `locked_until` has passed."""

    cancel_requested: bool
    attempts: int
    max_attempts: int
    stalled: int
    max_stalled: int | None
    reap_exhausted: ReapExhausted


def judge(stall: Stall) -> Action:
    """Decide what becomes of a stalled job.

    A wish to cancel comes first and is not counted as a stall. Then this stall is counted: one more than `max_stalled`
    fails the job, and so does a job without attempts left, unless its policy says to run it once more.
    """
    if stall.cancel_requested:
        return "cancelled"
    if stall.max_stalled is not None and stall.stalled + 1 > stall.max_stalled:
        return "failed"
    if stall.attempts >= stall.max_attempts and stall.reap_exhausted == "fail":
        return "failed"
    return "recovered"
