"""One job, from its enqueueing until it is pruned, as a storage that keeps jobs in memory holds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pgjq.job import LIVE
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS, RETENTION_SECONDS

if TYPE_CHECKING:
    from pgjq.job import JobError, JobSource, State
    from pgjq.lease import ReapExhausted
    from pgjq.options import Settings


@dataclass(slots=True, eq=False)
class Record:
    """Only `Jobs` changes one. What a claim resolved is recorded with it, so that every reaper decides alike."""

    seq: int
    queue: str
    id: str
    payload: bytes
    settings: Settings
    created_at: datetime
    run_at: datetime
    state: State = "queued"
    attempts: int = 0
    lease: int = 0
    stalled: int = 0
    cancel_requested: bool = False
    superseded: bool = False  # Its id was used again: it is nobody's job any more, and waits to be pruned.
    worker: str | None = None
    claim_id: int | None = None
    lease_seconds: float | None = None
    max_stalled: int | None = None
    reap_exhausted: ReapExhausted = "fail"
    started_at: datetime | None = None
    locked_until: datetime | None = None
    expire_at: datetime | None = None
    finished_at: datetime | None = None
    checkpoint: bytes | None = None
    result: bytes | None = None
    error: JobError | None = None
    stalled_on: tuple[str, ...] = ()
    source: JobSource | None = None
    slot: datetime | None = None  # When the slot of time begins that it has of its throttled key.
    ready: bool = False  # Where it is filed, which follows from the rest: claimable now.

    @property
    def max_attempts(self) -> int:
        """How many runs it may have."""
        return self.settings.max_attempts or MAX_ATTEMPTS

    @property
    def expires_at(self) -> datetime | None:
        """Until when its result or error can be read."""
        return later(self.finished_at, self.settings.result_ttl)

    @property
    def prune_at(self) -> datetime | None:
        """When its record may go; None is never."""
        options = self.settings.options
        if self.state in LIVE:
            retention = options.retention_seconds
            waits_since = max(self.created_at, self.run_at)
            return later(waits_since, RETENTION_SECONDS if retention is None else retention)
        keep = options.delete_after_seconds
        keep = DELETE_AFTER_SECONDS if keep is None else keep
        return later(self.finished_at, keep) if keep else None

    def is_readable(self, now: datetime) -> bool:
        """Whether its result or error can be read."""
        until = self.expires_at
        return until is not None and until > now


def later(start: datetime | None, seconds: float | None) -> datetime | None:
    """A moment so many seconds after another; without either there is none."""
    if start is None or seconds is None:
        return None
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:  # A job of the year 9998 that may wait for a century.
        return datetime.max.replace(tzinfo=start.tzinfo)


def earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    """The earlier of two moments that may not be set."""
    if one is None or other is None:
        return one or other
    return min(one, other)
