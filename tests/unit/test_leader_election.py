"""Elections as values: which numbers can work, and how long a proof is trusted."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, asdict
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import LeaderElection, ValidationError


def test_the_defaults_are_the_contracts() -> None:
    assert asdict(LeaderElection()) == {
        "enabled": False,
        "lock_ttl": 30.0,
        "renewal_interval": 10.0,
        "acquire_retry_interval": 5.0,
    }


def test_durations_may_be_timedeltas() -> None:
    assert LeaderElection(lock_ttl=timedelta(minutes=1)).lock_ttl == 60.0  # type: ignore[arg-type]


def test_an_election_cannot_be_changed() -> None:
    election: Any = LeaderElection()
    with pytest.raises(FrozenInstanceError):
        election.lock_ttl = 5


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"lock_ttl": 10, "renewal_interval": 10}, r"lock_ttl=10 is not more than renewal_interval=10.*a third"),
        ({"lock_ttl": 5}, "lock_ttl=5 is not more than renewal_interval=10"),
        ({"lock_ttl": 0}, "lock_ttl must be more than 0"),
        ({"renewal_interval": -1}, "renewal_interval must be more than 0"),
        ({"acquire_retry_interval": 0}, "acquire_retry_interval must be more than 0"),
        ({"acquire_retry_interval": float("nan")}, "acquire_retry_interval must be finite"),
        ({"lock_ttl": "30"}, "lock_ttl must be a number of seconds"),
        ({"enabled": "yes"}, "enabled must be True or False"),
    ],
)
def test_numbers_that_cannot_work_are_refused_by_name(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        LeaderElection(**values)


@running(deadline=None)
@given(st.floats(0.01, 1000), st.floats(1.01, 100))
def test_a_proof_is_trusted_beyond_the_next_one_but_shorter_than_the_lock_lasts(interval: float, times: float) -> None:
    election = LeaderElection(lock_ttl=interval * times, renewal_interval=interval)
    assert election.renewal_interval < election.trusted < election.lock_ttl
