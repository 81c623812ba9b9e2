"""What becomes of a run that raised."""

from __future__ import annotations

from typing import Any

import pytest

from pgjq import Discard, Retry, Snooze
from pgjq.job import AttemptOutcome, JobError, State
from pgjq.options import JobOptions
from pgjq.outcome import (
    Cancelled,
    Completed,
    EndedRun,
    Failed,
    Failing,
    Outcome,
    Released,
    Snoozed,
    decide,
    expire,
    state_settled,
)

DELAYED = JobOptions(retry_delay=7)
BACKING_OFF = JobOptions(retry_delay=3, retry_backoff=True)


def decided(error: Exception, attempts: int, options: JobOptions = DELAYED) -> Any:
    """Decide about one of three attempts."""
    return decide(error, attempts=attempts, max_attempts=3, options=options, chance=0.5)


@pytest.mark.parametrize("attempts", [1, 2])
def test_an_error_with_attempts_left_is_failing_for_the_retry_delay(attempts: int) -> None:
    outcome = decided(ValueError("boom"), attempts)
    assert isinstance(outcome, Failing)
    assert (outcome.delay, outcome.error.type, outcome.error.message) == (7, "ValueError", "boom")


@pytest.mark.parametrize("attempts", [3, 4])
@pytest.mark.parametrize("error", [ValueError("boom"), Retry(), Retry(delay=1)])
def test_an_error_without_attempts_left_has_failed(error: Exception, attempts: int) -> None:
    assert isinstance(decided(error, attempts), Failed)


def test_backoff_counts_the_coming_retry_from_one() -> None:
    assert [decided(ValueError(), attempts, BACKING_OFF).delay for attempts in (1, 2)] == [4.5, 9]


def test_a_handler_may_say_how_long_to_wait() -> None:
    assert decided(Retry(delay=1), 1).delay == 1
    assert decided(Retry(delay=0), 1).delay == 0
    assert decided(Retry(), 1).delay == 7


def test_an_order_goes_before_the_attempts() -> None:
    assert decided(Snooze(delay=5), 3) == Snoozed(5)
    discarded = decided(Discard("no use"), 1)
    assert isinstance(discarded, Failed)
    assert discarded.error.message == "no use"


def test_a_snooze_may_be_shorter_than_a_second() -> None:
    assert Snooze(delay=0.5).delay == 0.5
    assert Snooze(delay=0).delay == 0
    assert Snoozed().delay == 0


@pytest.mark.parametrize("kind", [Failing, Failed])
def test_an_attempt_that_took_too_long_is_marked(kind: type[Failing | Failed]) -> None:
    outcome = kind(JobError("Expired", "too long"))
    expired = expire(outcome)
    assert isinstance(expired, kind)
    assert (outcome.expired, expired.expired, expired.error) == (False, True, outcome.error)


@pytest.mark.parametrize("outcome", [Completed(b"1"), Released(), Snoozed(1), Cancelled()], ids=repr)
def test_an_outcome_that_is_no_failure_is_not_marked(outcome: Outcome) -> None:
    assert expire(outcome) == outcome


@pytest.mark.parametrize("kind", [Failing, Failed])
def test_the_exception_is_no_part_of_a_failure_s_value(kind: type[Failing | Failed]) -> None:
    error = JobError("ValueError", "boom")
    assert kind(error, cause=ValueError("boom")) == kind(error)
    assert "cause" not in repr(kind(error, cause=ValueError("boom")))


BOOM = JobError("Boom", "boom")
EVERY = (Completed(b"1"), Failed(BOOM), Failing(BOOM, 60), Released(), Snoozed(60), Cancelled())
FOUND: dict[tuple[AttemptOutcome | None, State | None], tuple[State | None, ...]] = {
    # What is recorded, and the state now: what a settlement with each outcome of EVERY led to.
    (None, "completed"): ("completed", None, None, None, None, None),
    (None, "queued"): (None,) * 6,
    (None, None): (None,) * 6,
    ("failed", "failed"): (None, "failed", "failed", None, None, None),
    ("failed", "failing"): (None, "failed", "failing", None, None, None),
    ("failed", "cancelled"): (None, "failed", "failing", None, None, None),
    ("failed", None): (None, "failed", "failing", None, None, None),
    ("released", "queued"): (None, None, None, "queued", None, None),
    ("released", "failing"): (None, None, None, "failing", None, None),
    ("released", "cancelled"): (None,) * 6,
    ("snoozed", "queued"): (None, None, None, None, "queued", None),
    ("snoozed", "failing"): (None, None, None, None, "failing", None),
    ("snoozed", None): (None,) * 6,
    ("cancelled", "cancelled"): ("cancelled", "cancelled", "cancelled", "cancelled", "cancelled", "cancelled"),
    ("stalled", "failing"): (None,) * 6,
    ("stalled", "failed"): (None,) * 6,
    ("expired", "failing"): (None,) * 6,
    ("lease_lost", "queued"): (None,) * 6,
}


@pytest.mark.parametrize("run", FOUND, ids=str)
def test_a_settlement_is_known_by_the_record_of_its_run(run: tuple[AttemptOutcome | None, State | None]) -> None:
    assert tuple(state_settled(outcome, EndedRun(*run, same_error=True)) for outcome in EVERY) == FOUND[run]


@pytest.mark.parametrize("outcome", EVERY, ids=repr)
def test_a_run_with_another_error_was_ended_by_something_else(outcome: Outcome) -> None:
    assert state_settled(outcome, EndedRun("failed", "failed", same_error=False)) is None


def test_an_expired_attempt_is_known_by_its_own_error() -> None:
    expired = Failing(BOOM, expired=True)
    assert state_settled(expired, EndedRun("expired", "failing", same_error=True)) == "failing"
    assert state_settled(expired, EndedRun("expired", "failing", same_error=False)) is None
