"""The time line of a job: what happened to it, run by run, and what will."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pgjq.job import ATTEMPTS_KEPT
from pgjq.web.formatting import duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from pgjq.job import Attempt, JobError, JobStatus

SAYINGS: Final = {"lease_lost": "lost its lease"}


@dataclass(frozen=True, slots=True)
class Step:
    """A point of the time line; `kind` is its colour."""

    kind: str
    label: str
    at: datetime
    more: str = ""
    error: JobError | None = None


def timeline_of(status: JobStatus, attempts: Sequence[Attempt]) -> list[Step]:
    """Return what happened to a job and what will, the earliest first."""
    # The sort keeps the order of steps of the same time: a job is enqueued before it runs.
    steps = [Step("enqueued", "enqueued", status.created_at), *_runs(attempts), *_now(status, attempts)]
    return sorted(steps, key=lambda step: step.at)


def _runs(attempts: Sequence[Attempt]) -> Iterator[Step]:
    for attempt in attempts:
        ran = duration((attempt.ended_at - attempt.started_at).total_seconds())
        more = f"after {ran}{f' on {attempt.worker}' if attempt.worker else ''}"
        label = f"run {attempt.number} {SAYINGS.get(attempt.outcome, attempt.outcome)}"
        yield Step(attempt.outcome, label, attempt.ended_at, more, attempt.error)


def _now(status: JobStatus, attempts: Sequence[Attempt]) -> Iterator[Step]:
    if status.state in ("queued", "failing") and status.run_at:
        yield Step("next", "runs again" if attempts else "may run", status.run_at)
    if status.state == "processing" and status.started_at:
        more = f"attempt {status.attempts} of {status.max_attempts}{f' on {status.worker}' if status.worker else ''}"
        yield Step("started", "started", status.started_at, more)
        if status.locked_until:
            yield Step("next", "lease ends", status.locked_until, "unless the worker renews it")
    is_told = bool(attempts) and status.finished_at is not None and attempts[-1].ended_at >= status.finished_at
    if status.finished_at and not is_told:
        yield Step(status.state, status.state, status.finished_at)


def are_left_out(attempts: Sequence[Attempt]) -> bool:
    """Whether there were more runs than are kept."""
    return len(attempts) == ATTEMPTS_KEPT and attempts[1].number > attempts[0].number + 1
