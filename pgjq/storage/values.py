"""The values that operations take and return, and the capabilities of a storage."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pgjq.options import NO_OPTIONS, JobOptions
from pgjq.outcome import state_settled

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from pgjq.job import Action, JobError, Reason, State
    from pgjq.options import Headers
    from pgjq.outcome import EndedRun, Outcome


def _meaning(text: str) -> dict[str, str]:
    return {"means": text}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a storage supports. The table in `docs/storages.md` is made from these fields."""

    durable: bool | str = field(metadata=_meaning("an accepted job survives the process, and the machine's crash"))
    processes: bool = field(metadata=_meaning("several processes share the jobs"))
    machines: bool = field(metadata=_meaning("so do several machines"))
    transactions: bool = field(
        metadata=_meaning("`connection=` enqueues in the caller's transaction, `job.transaction()` completes in one")
    )
    leader_election: bool = field(metadata=_meaning("`elect` and `resign` work"))
    definitions: bool = field(
        default=False,
        metadata=_meaning("queues have definitions: policies such as `singleton`, dead letters, retention"),
    )
    order: str = field(
        default="priority, then enqueueing", metadata=_meaning("in which order due jobs of a queue are claimed")
    )
    notice: str = field(default="", metadata=_meaning("how soon an idle worker learns of a job"))
    clock: str = field(default="", metadata=_meaning("what every deadline is set and compared by"))
    url: str = field(default="", metadata=_meaning("for `open_storage`"))


class Lease(NamedTuple):
    """The right to end one run of one job. `key` is the storage's internal key of the job."""

    queue: str
    id: str
    number: int
    key: Any


class Claimed(NamedTuple):
    """A job that a worker has claimed."""

    lease: Lease
    payload: bytes
    attempts: int
    max_attempts: int
    created_at: datetime
    lease_seconds: float | None
    expire_seconds: float | None
    checkpoint: bytes | None = None
    options: JobOptions = NO_OPTIONS
    task: str | None = None
    headers: Headers | None = None


class Settlement(NamedTuple):
    """The outcome of a run, and the lease it was claimed with."""

    lease: Lease
    outcome: Outcome


class Settled(NamedTuple):
    """The state that a settlement led to; None if the lease was lost.

    It is `cancelled` if a cancellation was requested before, whatever the outcome.
    """

    lease: Lease
    state: State | None


def settled_as(settlement: Settlement, run: EndedRun | None) -> Settled:
    """Return one result of `find_settled`; None: the run goes on, or is forgotten."""
    return Settled(settlement.lease, None if run is None else state_settled(settlement.outcome, run))


@dataclass(frozen=True, slots=True)
class HeartbeatResult:
    """The result of a heartbeat. A lease that is neither lost nor skipped was renewed.

    A skipped lease is held, but was not renewed: another transaction has locked its job. The caller tries again soon.
    """

    lost: list[Lease]
    cancel_requested: list[Lease]
    skipped: Sequence[Lease] = ()


@dataclass(frozen=True, slots=True)
class Reaped:
    """A stalled job, and what the reaper did with it. A failed one has its `payload`."""

    queue: str
    id: str
    count: int
    attempts: int
    max_attempts: int
    action: Action
    reason: Reason
    worker: str
    payload: bytes | None = None
    task: str | None = None


class Answer(NamedTuple):
    """A job's state and, if it has ended, its result or error while they can be read."""

    state: State
    attempts: int
    max_attempts: int
    result: bytes | None = None
    error: JobError | None = None
    expired: bool = False
