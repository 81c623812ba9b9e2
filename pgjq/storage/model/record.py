"""The record of one job, from its enqueue until it is pruned."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from pgjq.job import ATTEMPTS_KEPT, LIVE
from pgjq.options import DELETE_AFTER_SECONDS, MAX_ATTEMPTS, RETENTION_SECONDS

if TYPE_CHECKING:
    from pgjq.job import Attempt, JobError, JobSource, State
    from pgjq.lease import ReapExhausted
    from pgjq.options import Headers, Settings

SlotKey = tuple[str, str | None, datetime | None]


@dataclass(slots=True, eq=False)
class Record:
    """One job. Only `Jobs` changes it. A claim stores its terms here for all reapers."""

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
    superseded: bool = False  # A newer job has its id: only its waiters can read it, until it is pruned.
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
    history: tuple[Attempt, ...] = ()  # The runs that did not complete.
    source: JobSource | None = None
    task: str | None = None
    headers: Headers | None = None
    slot: datetime | None = None  # When its time slot begins, if its key is throttled.
    ready: bool = False  # Indexed as claimable now; derived from the other fields.

    @property
    def last_attempt(self) -> Attempt | None:
        """The last run that did not complete; setting it adds to the history."""
        return self.history[-1] if self.history else None

    @last_attempt.setter
    def last_attempt(self, attempt: Attempt) -> None:
        self.history = kept_attempts((*self.history, attempt))

    @property
    def slot_key(self) -> SlotKey:
        """Its time slot among those of all queues and keys."""
        return self.queue, self.settings.singleton_key, self.slot

    @property
    def max_attempts(self) -> int:
        """How many attempts it may have."""
        return self.settings.max_attempts or MAX_ATTEMPTS

    @property
    def expires_at(self) -> datetime | None:
        """When its result or error can no longer be read."""
        return later(self.finished_at, self.settings.result_ttl)

    @property
    def prune_at(self) -> datetime | None:
        """When its record may be pruned; None: never."""
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


def kept_attempts(attempts: tuple[Attempt, ...]) -> tuple[Attempt, ...]:
    """Return the attempts of a job that are kept: the first and the last ones."""
    return attempts if len(attempts) <= ATTEMPTS_KEPT else (attempts[0], *attempts[1 - ATTEMPTS_KEPT :])


def later(start: datetime | None, seconds: float | None) -> datetime | None:
    """Return the time so many seconds after another; None if either is None."""
    if start is None or seconds is None:
        return None
    try:
        return start + timedelta(seconds=seconds)
    except OverflowError:  # Such as a job of the year 9998 that may wait for a century.
        return datetime.max.replace(tzinfo=start.tzinfo)


def earlier(one: datetime | None, other: datetime | None) -> datetime | None:
    """Return the earlier of two times, either of which may be None."""
    if one is None or other is None:
        return one or other
    return min(one, other)
