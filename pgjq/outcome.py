"""Outcomes of runs, and the rule that maps an exception to one.

A storage settles a batch of outcomes with one method, each under its lease. A handler raises `Retry`, `Snooze` or
`Discard` to choose the outcome; any other exception follows the job's retry policy. `decide` is the whole rule, as a
pure function.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, assert_never

from pgjq.job import JobError
from pgjq.options import check_seconds
from pgjq.retry import retry_delay

if TYPE_CHECKING:
    from datetime import timedelta

    from pgjq.job import AttemptOutcome, State
    from pgjq.options import JobOptions


@dataclass(frozen=True, slots=True)
class Completed:
    """The run succeeded; `result` is the handler's return value, serialised."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True)
class Failing:
    """Failed, runs again after `delay` seconds; `cause` is the exception if raised here.

    `expired`: the attempt took too long.
    """

    error: JobError
    delay: float = 0.0
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """Failed permanently; `cause` and `expired` as in `Failing`."""

    error: JobError
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    expired: bool = False


@dataclass(frozen=True, slots=True)
class Released:
    """Released unfinished by a worker that stops; the attempt does not count."""


@dataclass(frozen=True, slots=True)
class Snoozed:
    """Postponed by its handler for `delay` seconds; the attempt does not count."""

    delay: float = 0.0


@dataclass(frozen=True, slots=True)
class Cancelled:
    """Cancelled while it ran."""


Outcome = Completed | Failing | Failed | Released | Snoozed | Cancelled


class Retry(Exception):
    """Raise in a handler to fail this attempt and retry after `delay`, if an attempt is left."""

    def __init__(self, delay: float | timedelta | None = None) -> None:
        self.delay = None if delay is None else check_seconds("delay", delay, at_least=0)
        super().__init__("asked to be retried")


class Snooze(Exception):
    """Raise in a handler to run the job again after `delay`, without counting this attempt."""

    def __init__(self, delay: float | timedelta) -> None:
        self.delay = check_seconds("delay", delay, at_least=0)
        super().__init__(f"asked to be put off for {self.delay:g} s")


class Discard(Exception):
    """Raise in a handler to fail the job permanently, whatever attempts are left."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class EndedRun(NamedTuple):
    """How a run ended, as a storage finds it by its lease.

    `recorded` is None if it completed; `state` is the job's now, None if it was claimed again; `same_error`: the run
    has the error that the caller names.
    """

    recorded: AttemptOutcome | None
    state: State | None
    same_error: bool


def state_settled(outcome: Outcome, run: EndedRun) -> State | None:
    """Return the state that a settlement led to; None if something else ended the run.

    A run that ended because its cancellation was requested is `cancelled`, whatever ended it. Where a released job
    returned to is not known once it has left that state.
    """
    if run.recorded is None:
        return "completed" if isinstance(outcome, Completed) and run.state == "completed" else None
    if run.recorded == "cancelled":
        return "cancelled"
    if run.recorded != attempt_outcome(outcome) or not run.same_error:
        return None
    match outcome:
        case Failed():
            return "failed"
        case Failing():
            return "failed" if run.state == "failed" else "failing"
        case _:
            return run.state if run.state in ("queued", "failing") else None


def attempt_outcome(outcome: Outcome) -> AttemptOutcome:
    """Return the outcome of a run as its attempt records it."""
    match outcome:
        case Completed():
            return "completed"
        case Failing() | Failed():
            return "expired" if outcome.expired else "failed"
        case Released():
            return "released"
        case Snoozed():
            return "snoozed"
        case Cancelled():
            return "cancelled"
        case _:
            assert_never(outcome)


def expire(outcome: Outcome) -> Outcome:
    """Mark the outcome of an attempt that took too long."""
    return replace(outcome, expired=True) if isinstance(outcome, Failing | Failed) else outcome


def decide(error: BaseException, *, attempts: int, max_attempts: int, options: JobOptions, chance: float) -> Outcome:
    """Return the outcome of a run that raised; `chance` in [0, 1) is the jitter of its backoff."""
    match error:
        case Snooze():
            return Snoozed(error.delay)
        case Discard():
            return fail(error)
        case _ if attempts >= max_attempts:
            return fail(error)
        case Retry() if error.delay is not None:
            return Failing(describe(error), error.delay, error)
        case _:
            return Failing(describe(error), retry_delay(options, attempts, chance), error)


def fail(error: BaseException) -> Failed:
    """Return the outcome that fails a job permanently with an exception."""
    return Failed(describe(error), error)


def describe(error: BaseException) -> JobError:
    """Return an exception as a JobError."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    return JobError(name, _text(error), "".join(traceback.format_exception(error)))


def _text(error: BaseException) -> str:
    """Return an exception's message, or a substitute if its __str__ raises."""
    try:
        return str(error)
    except Exception as worse:  # noqa: BLE001
        return f"(its message cannot be read: {type(worse).__name__})"
