"""Lease policies, and the decision about stalled jobs.

A claim gives a job to one worker until `locked_until`. Two independent deadlines limit that: the lease (liveness;
every heartbeat extends it) and the expiry (the longest duration of one attempt, with or without heartbeats).
`locked_until` is the earlier of the two, so a reaper reads one column. `judge` is the whole decision about a job past
it, as a pure function: every storage calls it or, where the server decides, is tested against it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from pgjq.errors import ValidationError
from pgjq.job import JobError
from pgjq.options import check_int, check_seconds

if TYPE_CHECKING:
    from datetime import timedelta

    from pgjq.job import Action, Reason

MINUTE: Final = 60.0
LEAST_HEARTBEAT: Final = 10

ReapExhausted = Literal["fail", "requeue"]


@dataclass(frozen=True)
class LeasePolicy:
    """The lease that a claim requests, and the rules of a reaper. Durations are seconds.

    `visibility`, `stale_lock`, `stall` and `monitor` are policies known from other queues, with their numbers.
    """

    lease: float | None = 30.0
    heartbeat: float | None = 10.0
    expire: float | None = 900.0
    stale_age: float = 0.0
    reap_interval: float = 5.0
    max_stalled: int | None = None
    reap_exhausted: ReapExhausted = "fail"

    @classmethod
    def visibility(cls, timeout: float | timedelta = 30.0) -> LeasePolicy:
        """Stall a job `timeout` after its claim, worker alive or not; only `job.heartbeat()` renews."""
        return cls(lease=check_seconds("timeout", timeout, above=0), heartbeat=None, expire=None)

    @classmethod
    def stale_lock(
        cls, *, interval: float | timedelta = 5 * MINUTE, age: float | timedelta = 45 * MINUTE
    ) -> LeasePolicy:
        """Lock for 45 minutes, renew every 2, reap when stale for `age`; reaping never fails a job."""
        lease = 45 * MINUTE
        if check_seconds("age", age) < lease:
            raise ValidationError(
                f"age must be at least as long as the lock, {lease:g} s, not {check_seconds('age', age):g}"
            )
        return cls(
            lease=lease,
            heartbeat=2 * MINUTE,
            expire=None,
            stale_age=check_seconds("age", age),
            reap_interval=check_seconds("interval", interval, at_least=0),
            reap_exhausted="requeue",
        )

    @classmethod
    def stall(cls, interval: float | timedelta = 30.0, max_count: int = 1) -> LeasePolicy:
        """Stall a job not renewed between two checks: it reruns `max_count` times, then fails.

        Only stalls count for that, so a stalled job runs again even without attempts left.
        """
        length = check_seconds("interval", interval, above=0)
        return cls(
            lease=length,
            heartbeat=length / 3,
            expire=None,
            reap_interval=length,
            max_stalled=check_int("max_count", max_count, 0),
            reap_exhausted="requeue",
        )

    @classmethod
    def monitor(
        cls,
        expire: float | timedelta = 15 * MINUTE,
        heartbeat_seconds: float | timedelta | None = None,
        interval: float | timedelta = MINUTE,
    ) -> LeasePolicy:
        """Limit an attempt to `expire`; with `heartbeat_seconds` its worker must renew that often."""
        lease = None
        if heartbeat_seconds is not None:
            lease = check_seconds("heartbeat_seconds", heartbeat_seconds, at_least=LEAST_HEARTBEAT)
        return cls(
            lease=lease,
            heartbeat=None if lease is None else lease / 2,
            expire=check_seconds("expire", expire, at_least=1),
            reap_interval=check_seconds("interval", interval, at_least=0),
        )

    def __post_init__(self) -> None:
        """Refuse values that contradict each other, with an error that names them."""
        for name in ("lease", "heartbeat", "expire"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, check_seconds(name, getattr(self, name), above=0))
        for name in ("stale_age", "reap_interval"):
            object.__setattr__(self, name, check_seconds(name, getattr(self, name), at_least=0))
        self._check_heartbeat()
        if self.max_stalled is not None:
            check_int("max_stalled", self.max_stalled, 0)
        if self.reap_exhausted not in ("fail", "requeue"):
            raise ValidationError(f'reap_exhausted must be "fail" or "requeue", not {self.reap_exhausted!r}')

    def _check_heartbeat(self) -> None:
        if self.lease is not None and self.heartbeat is not None and self.heartbeat > self.lease / 2:
            raise ValidationError(
                f"heartbeat={self.heartbeat:g} is more than half of lease={self.lease:g}: "
                "one late renewal would lose the job; use a third of the lease"
            )


def visible_for(visibility_timeout: float | timedelta) -> LeasePolicy:
    """Return the policy for which `visibility_timeout` is the short form."""
    timeout = check_seconds("visibility_timeout", visibility_timeout, above=0)
    return LeasePolicy(lease=timeout, heartbeat=timeout / 3)


@dataclass(frozen=True, slots=True)
class Stall:
    """The state of a job whose `locked_until` has passed."""

    cancel_requested: bool
    attempts: int
    max_attempts: int
    stalled: int
    max_stalled: int | None
    reap_exhausted: ReapExhausted


def explain(reason: Reason, worker: str) -> JobError:
    """Describe why a job stalled, as the error of its record."""
    what = "the attempt took too long" if reason == "expired" else "its worker went silent"
    return JobError("Stalled", f"{what} (worker {worker})")


def judge(stall: Stall) -> Action:
    """Decide what happens to a stalled job.

    A cancel request comes first and does not count as a stall. Otherwise this stall counts: more than `max_stalled`
    fails the job, and so does a lack of attempts, unless the policy lets the job run once more.
    """
    if stall.cancel_requested:
        return "cancelled"
    if stall.max_stalled is not None and stall.stalled + 1 > stall.max_stalled:
        return "failed"
    if stall.attempts >= stall.max_attempts and stall.reap_exhausted == "fail":
        return "failed"
    return "recovered"
