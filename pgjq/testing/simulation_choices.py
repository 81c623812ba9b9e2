"""What a simulated history chooses from: workers, lease policies, jobs and outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.job import JobError, NewJob
from pgjq.job_settings import settings
from pgjq.lease import LeasePolicy
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed

if TYPE_CHECKING:
    from pgjq.outcome import Outcome

WORKERS = ("ann", "bob", "cid")
JOBS = 4
BOOM = JobError("Boom", "boom")
POLICIES = (
    LeasePolicy(lease=10, heartbeat=3),
    LeasePolicy(lease=10, heartbeat=None, expire=15, max_stalled=1),
    LeasePolicy(lease=None, heartbeat=None, expire=12, max_stalled=0),
    LeasePolicy(lease=20, heartbeat=5, expire=None, reap_exhausted="requeue", max_stalled=2),
    LeasePolicy(lease=5, heartbeat=2, reap_exhausted="requeue"),
)
SUBMISSIONS = tuple(
    settings(NewJob(None, None, max_attempts=attempts, retry_delay=delay)) for attempts in (1, 2, 3) for delay in (0, 4)
)
OUTCOMES: tuple[Outcome, ...] = (
    Completed(b"done"),
    Completed(b"done"),
    Failed(BOOM),
    Failing(BOOM),
    Failing(BOOM, 6),
    Released(),
    Snoozed(3),
    Cancelled(),
)
