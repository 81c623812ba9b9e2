"""Leases as values: which policies can work, and what becomes of a stalled job."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict
from datetime import timedelta
from math import inf, nan
from typing import TYPE_CHECKING, Any, Literal

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import LeasePolicy, ValidationError
from pgjq.lease import Stall, judge, visible_for

if TYPE_CHECKING:
    from collections.abc import Callable

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


def numbers(policy: LeasePolicy) -> dict[str, Any]:
    """Only what differs from the defaults."""
    usual = asdict(LeasePolicy())
    return {name: value for name, value in asdict(policy).items() if value != usual[name]}


def test_visibility_stalls_a_job_thirty_seconds_after_its_claim_and_nothing_renews_it() -> None:
    policy = LeasePolicy.visibility()
    assert (policy.lease, policy.heartbeat, policy.expire) == (30.0, None, None)
    assert numbers(LeasePolicy.visibility(60)) == {"lease": 60.0, "heartbeat": None, "expire": None}


def test_stale_lock_has_locks_of_45_minutes_renewed_every_two_reaped_45_later_every_five() -> None:
    assert numbers(LeasePolicy.stale_lock()) == {
        "lease": 2700.0,
        "heartbeat": 120.0,
        "expire": None,
        "stale_age": 2700.0,
        "reap_interval": 300.0,
        "reap_exhausted": "requeue",
    }


def test_stale_lock_can_be_turned_off_and_made_more_patient() -> None:
    policy = LeasePolicy.stale_lock(interval=0, age=timedelta(hours=2))
    assert (policy.reap_interval, policy.stale_age) == (0.0, 7200.0)


def test_stall_checks_every_thirty_seconds_and_allows_one() -> None:
    assert numbers(LeasePolicy.stall()) == {
        "expire": None,
        "reap_interval": 30.0,
        "max_stalled": 1,
        "reap_exhausted": "requeue",
    }
    assert (LeasePolicy.stall().lease, LeasePolicy.stall().heartbeat) == (30.0, 10.0)
    policy = LeasePolicy.stall(interval=15, max_count=2)
    assert (policy.lease, policy.reap_interval, policy.heartbeat, policy.max_stalled) == (15.0, 15.0, 5.0, 2)


def test_monitor_looks_every_minute_at_attempts_of_fifteen_and_asks_for_no_heartbeat() -> None:
    assert numbers(LeasePolicy.monitor()) == {"lease": None, "heartbeat": None, "reap_interval": 60.0}
    assert LeasePolicy.monitor().expire == 900.0


def test_monitor_may_look_more_often_than_every_second() -> None:
    assert LeasePolicy.monitor(interval=0.5).reap_interval == 0.5


@pytest.mark.parametrize(("expire", "heartbeat"), [(900, 30), (1800, 60), (7200, 300), (86400, 600)])
def test_monitor_takes_the_recommended_pairs(expire: float, heartbeat: float) -> None:
    policy = LeasePolicy.monitor(expire, heartbeat_seconds=heartbeat)
    assert (policy.expire, policy.lease, policy.heartbeat) == (expire, heartbeat, heartbeat / 2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LeasePolicy.visibility(0), "timeout must be more than 0"),
        (lambda: LeasePolicy.stale_lock(age=60), "age must be at least as long as the lock, 2700 s, not 60"),
        (lambda: LeasePolicy.stale_lock(age=-1), "age must be at least"),
        (lambda: LeasePolicy.stale_lock(interval=-1), "interval must be at least 0"),
        (lambda: LeasePolicy.stall(interval=0), "interval must be more than 0"),
        (lambda: LeasePolicy.stall(max_count=-1), "max_count must be between 0"),
        (lambda: LeasePolicy.monitor(expire=0.5), "expire must be at least 1"),
        (lambda: LeasePolicy.monitor(heartbeat_seconds=9), "heartbeat_seconds must be at least 10"),
    ],
)
def test_a_presets_numbers_are_checked_by_name(make: Callable[[], LeasePolicy], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        make()


@pytest.mark.parametrize("allowed", [0, 1, 2, 3])
def test_a_stall_policy_allows_so_many_recoveries_whatever_attempts_are_left(allowed: int) -> None:
    policy = LeasePolicy.stall(max_count=allowed)
    stalls = (Stall(False, n + 1, 1, n, policy.max_stalled, policy.reap_exhausted) for n in range(allowed + 1))
    assert [judge(stall) for stall in stalls] == ["recovered"] * allowed + ["failed"]


def test_a_visibility_timeout_may_be_shorter_than_a_second() -> None:
    assert visible_for(0.5) == LeasePolicy(lease=0.5, heartbeat=0.5 / 3)
