"""Inspection: what the web page asks of a storage, beside the operations of the client.

Every answer is bounded: a list has a limit, a count that is not cheap is the last one that was counted or ends at a
limit, and a search looks at so many jobs at a time and says where it stopped. Storages without an inspection of their
own are inspected through their operations (`pgjq.generic_inspection`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import Attempt, JobStatus, QueueStats, State, WorkerInfo

MANY = 100  # Ready jobs of a queue are counted up to this number; beyond it the last count is shown.


@dataclass(frozen=True, slots=True)
class QueueOverview:
    """A queue at a glance; `ready` is exact below `MANY`, `counted` the last full count."""

    name: str
    paused: bool
    ready: int
    oldest: float | None
    processing: int
    counted: QueueStats | None = None
    takes_dead_letters: bool = False

    @property
    def about_ready(self) -> int:
        """Ready jobs: exact if few, else at least `ready`."""
        return max(self.ready, self.counted.ready) if self.counted and self.ready >= MANY else self.ready

    @property
    def is_estimate(self) -> bool:
        """Whether `about_ready` is not exact."""
        return self.ready >= MANY

    @property
    def ready_short(self) -> str:
        """Ready jobs for a table."""
        if not self.is_estimate:
            return f"{self.ready:,}"
        return f"~ {self.about_ready:,}" if self.about_ready > MANY else f"{MANY}+"

    @property
    def ready_text(self) -> str:
        """Ready jobs in words: exact if few, else as they were last counted, or that there are many."""
        if not self.is_estimate:
            return f"{self.ready:,}"
        return f"about {self.about_ready:,}" if self.about_ready > MANY else f"at least {MANY}"


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over all queues, from the last counts; `processing` is counted up to 10,001."""

    queues: int = 0
    ready: int | None = None
    deferred: int | None = None
    failing: int | None = None
    failed: int | None = None
    completed: int | None = None
    processing: int = 0


@dataclass(frozen=True, slots=True)
class Minute:
    """Endings of one minute, with typical seconds of waits and runs, and the oldest ready age."""

    at: datetime
    completed: int
    failed: int
    cancelled: int
    waited: float | None = None
    ran: float | None = None
    ready: int = 0
    oldest: float | None = None


@dataclass(frozen=True, slots=True)
class JobSearch:
    """What to search for: parts of an error's type, message or place; other fields are exact."""

    queue: str | None = None
    state: State | None = None
    id: str | None = None
    key: str | None = None
    worker: str | None = None
    error: str | None = None
    task: str | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None
    ended_before: datetime | None = None
    ended_after: datetime | None = None


@dataclass(frozen=True, slots=True)
class FoundJob:
    """A job that a search found: its status without result, and where its error was raised."""

    status: JobStatus
    place: str | None = None


@dataclass(frozen=True, slots=True)
class SearchPage:
    """Jobs that were found; with `next`, the search stopped there, and there may be more."""

    jobs: Sequence[FoundJob]
    next: str | None = None
    looked_at: int = 0
    order: str = "newest first"


@dataclass(frozen=True, slots=True)
class Content:
    """A job's payload and checkpoint, or the beginning of them, with their whole sizes."""

    payload: bytes | None = None
    payload_size: int = 0
    checkpoint: bytes | None = None
    checkpoint_size: int = 0


@dataclass(frozen=True, slots=True)
class Stalled:
    """A running job whose deadline has passed, and that no reaper has taken back yet."""

    queue: str
    id: str
    worker: str | None
    overdue: float
    reason: str


@dataclass(frozen=True, slots=True)
class BlockedKey:
    """A strictly ordered key behind a failed or failing job; `waiting` is exact below 100."""

    queue: str
    key: str
    state: str
    id: str
    blocked_for: float | None
    waiting: int | None


@dataclass(frozen=True, slots=True)
class Leader:
    """The leader of a role; `holder` is None while there is none."""

    role: str
    holder: str | None
    since: datetime | None = None


@dataclass(frozen=True, slots=True)
class Rights:
    """What the storage lets this program do."""

    actions: frozenset[str] = field(default_factory=frozenset[str])
    content: bool = True
    audit: bool = True


@dataclass(frozen=True, slots=True)
class AuditEntry:
    """An action of a person: `ids` are the first of `meant` jobs; `count` of them changed."""

    number: int
    at: datetime
    actor: str
    action: str
    queue: str
    ids: Sequence[str]
    meant: int
    count: int | None


class Inspection(Protocol):
    """Reads for people, and the record of what they did."""

    async def queues(self, *, queue: str | None = None, name: str | None = None, limit: int) -> list[QueueOverview]:
        """List the busiest queues, by name: one queue, or those whose names contain `name`."""
        ...

    async def totals(self) -> Totals:
        """Sum up the last counts of all queues."""
        ...

    async def minutes(self, queue: str | None, count: int) -> list[Minute]:
        """List the statistics of the last minutes; minutes without any are left out."""
        ...

    async def search(self, wanted: JobSearch, after: str | None, limit: int) -> SearchPage:
        """Find jobs, as many as one page has or as a bounded effort finds."""
        ...

    async def status(self, queue: str, job_id: str) -> JobStatus | None:
        """Read one job; its result stays bytes."""
        ...

    async def attempts(self, queue: str, job_id: str) -> list[Attempt]:
        """Read the ended runs of one job; none if this program may not read them."""
        ...

    async def content(self, queue: str, job_id: str, most: int) -> Content | None:
        """Read a job's payload and checkpoint."""
        ...

    async def workers(self, limit: int) -> list[WorkerInfo]:
        """List live workers, then those that went silent within a day."""
        ...

    async def leaders(self) -> list[Leader]:
        """List who leads."""
        ...

    async def stalled(self, limit: int) -> list[Stalled]:
        """List running jobs that are overdue."""
        ...

    async def blocked(self, queue: str | None, limit: int) -> list[BlockedKey]:
        """List blocked keys."""
        ...

    async def rights(self) -> Rights:
        """Return what this program may do."""
        ...

    async def mark(self) -> str:
        """Return a text that differs from an earlier one if anything may have changed since."""
        ...

    async def audit(self, *, queue: str | None, before: int | None, limit: int) -> list[AuditEntry]:
        """List actions, the latest first."""
        ...

    async def begin_action(self, actor: str, action: str, queue: str, ids: Sequence[str]) -> Any:
        """Write down an action before it is taken; return its number."""
        ...

    async def end_action(self, number: Any, count: int) -> None:
        """Write down how many jobs an action changed."""
        ...
