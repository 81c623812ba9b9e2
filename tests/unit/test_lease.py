"""Leases as values: which policies can work, and what becomes of a stalled job."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict
from math import inf, nan
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import LeasePolicy, ValidationError
from pgjq.lease import Stall, judge

in_any_time = running(deadline=None)

stalls = st.builds(
    Stall,
    cancel_requested=st.booleans(),
    attempts=st.integers(1, 9),
    max_attempts=st.integers(1, 9),
    stalled=st.integers(0, 9),
    max_stalled=st.none() | st.integers(0, 9),
    reap_exhausted=st.sampled_from(["fail", "requeue"]),
)


def test_the_defaults_are_the_contracts() -> None:
    assert asdict(LeasePolicy()) == {
        "lease": 30.0,
        "heartbeat": 10.0,
        "expire": 900.0,
        "stale_age": 0.0,
        "reap_interval": 5.0,
        "max_stalled": None,
        "reap_exhausted": "fail",
    }


def test_a_policy_cannot_be_changed() -> None:
    policy: Any = LeasePolicy()
    with pytest.raises(FrozenInstanceError):
        policy.lease = 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lease": 0}, "lease must be more than 0"),
        ({"lease": -1}, "lease must be more than 0"),
        ({"lease": nan}, "lease must be finite"),
        ({"lease": inf}, "lease must be finite"),
        ({"lease": "30"}, "lease must be a number of seconds"),
        ({"lease": True}, "lease must be a number of seconds"),
        ({"heartbeat": 0}, "heartbeat must be more than 0"),
        ({"expire": 0}, "expire must be more than 0"),
        ({"stale_age": -1}, "stale_age must be at least 0"),
        ({"stale_age": None}, "stale_age must be a number of seconds"),
        ({"reap_interval": -1}, "reap_interval must be at least 0"),
        ({"max_stalled": -1}, "max_stalled must be between 0"),
        ({"max_stalled": 1.5}, "max_stalled must be a whole number"),
        ({"reap_exhausted": "retry"}, 'reap_exhausted must be "fail" or "requeue"'),
    ],
)
def test_numbers_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LeasePolicy(**values)


def test_a_heartbeat_that_one_delay_would_make_too_late_is_refused_with_advice() -> None:
    with pytest.raises(ValidationError, match=r"heartbeat=20 is more than half of lease=30.*a third of the lease"):
        LeasePolicy(lease=30, heartbeat=20)


@pytest.mark.parametrize(
    "values",
    [
        {"lease": None},
        {"lease": None, "heartbeat": 1000},
        {"heartbeat": None},
        {"expire": None},
        {"lease": None, "heartbeat": None, "expire": None},
        {"lease": 30, "heartbeat": 15},
        {"max_stalled": 0},
        {"reap_interval": 0},
        {"lease": 1800, "heartbeat": 600, "expire": 2 * 86400},
    ],
)
def test_policies_that_can_work_are_taken(values: dict[str, Any]) -> None:
    assert {name: getattr(LeasePolicy(**values), name) for name in values} == values


@pytest.mark.parametrize(
    ("cancel", "attempts_left", "stalls_left", "exhausted", "action"),
    [
        (True, True, True, "fail", "cancelled"),
        (True, False, True, "fail", "cancelled"),
        (True, True, False, "fail", "cancelled"),
        (True, False, False, "requeue", "cancelled"),
        (False, True, True, "fail", "recovered"),
        (False, True, True, "requeue", "recovered"),
        (False, False, True, "fail", "failed"),
        (False, False, True, "requeue", "recovered"),
        (False, True, False, "fail", "failed"),
        (False, True, False, "requeue", "failed"),
        (False, False, False, "fail", "failed"),
        (False, False, False, "requeue", "failed"),
    ],
)
def test_what_becomes_of_a_stalled_job(
    *, cancel: bool, attempts_left: bool, stalls_left: bool, exhausted: Literal["fail", "requeue"], action: str
) -> None:
    attempts, stalled = (2 if attempts_left else 3), (0 if stalls_left else 1)
    assert judge(Stall(cancel, attempts, 3, stalled, 1, exhausted)) == action


def test_a_stall_more_than_allowed_fails_the_job_and_not_one_less() -> None:
    assert [judge(Stall(False, 1, 9, stalled, 2, "fail")) for stalled in range(4)] == [
        "recovered",
        "recovered",
        "failed",
        "failed",
    ]


def test_no_stalls_allowed_fails_the_job_at_the_first() -> None:
    assert judge(Stall(False, 1, 9, 0, 0, "fail")) == "failed"


@in_any_time
@given(stalls)
def test_cancelled_means_that_somebody_asked_for_it(stall: Stall) -> None:
    assert (judge(stall) == "cancelled") == stall.cancel_requested


@in_any_time
@given(stalls)
def test_without_a_limit_on_stalls_attempts_alone_decide(stall: Stall) -> None:
    unlimited = Stall(False, stall.attempts, stall.max_attempts, stall.stalled, None, "fail")
    assert (judge(unlimited) == "failed") == (stall.attempts >= stall.max_attempts)
