"""The worker of a claim, and the deadlines of the jobs that it claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pgjq.storage.model.record import earlier, later

if TYPE_CHECKING:
    from datetime import datetime

    from pgjq.lease import LeasePolicy
    from pgjq.options import JobOptions


class ClaimDeadlines(NamedTuple):
    """The deadlines of a claim made now, from the job's options, else the worker's policy."""

    lease_seconds: float | None
    locked_until: datetime | None
    expire_at: datetime | None

    @classmethod
    def of(cls, options: JobOptions, policy: LeasePolicy, now: datetime) -> ClaimDeadlines:
        """Compute the terms of a claim."""
        lease = policy.lease if options.heartbeat_seconds is None else options.heartbeat_seconds
        expire = policy.expire if options.expire_in_seconds is None else options.expire_in_seconds
        expire_at = later(now, expire)
        return cls(lease, earlier(later(now, lease), expire_at), expire_at)


class Claimant(NamedTuple):
    """The worker that claims jobs, the claim's id and its lease policy."""

    worker: str
    claim_id: int | None
    policy: LeasePolicy
