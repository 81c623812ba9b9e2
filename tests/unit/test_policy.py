"""Policies as pure rules: which states of a key's other jobs refuse, block or displace a job."""

from __future__ import annotations

from itertools import combinations

import pytest

from pgjq.policy import POLICIES, Policy

STATES = ("queued", "processing", "failing", "completed", "failed", "cancelled")
SIBLINGS = [pair for size in range(3) for pair in combinations(STATES, size)]
REFUSED_BY = {
    "short": {"queued"},
    "stately": {"queued"},
    "exclusive": {"queued", "processing", "failing"},
}
BLOCKED_BY = {
    "singleton": {"processing"},
    "stately": {"processing"},
    "key_strict_fifo": {"processing", "failing", "failed"},
}
# Serial, limits queued, may lack a slot, limits keys.
PROPERTIES = {
    "standard": (False, False, False, False),
    "short": (False, True, True, True),
    "singleton": (True, False, False, True),
    "stately": (True, True, True, True),
    "exclusive": (False, True, False, True),
    "key_strict_fifo": (True, False, False, True),
}

every_policy = pytest.mark.parametrize("policy", Policy)


@every_policy
def test_what_a_policy_is_follows_from_its_slots(policy: Policy) -> None:
    found = (policy.is_serial, policy.limits_queued, policy.may_lack_slot, policy.limits_keys)
    assert found == PROPERTIES[policy]
    assert policy.is_stately == (policy == "stately")
    assert policy.is_strict == (policy == "key_strict_fifo")


@every_policy
@pytest.mark.parametrize("bits", [0, 8, 8 * 1000])
def test_the_last_bits_of_a_queues_number_are_its_policy(policy: Policy, bits: int) -> None:
    assert Policy.of_queue(bits + policy.number) is policy
    assert POLICIES[policy.number] == policy


@every_policy
def test_a_job_is_refused_by_the_states_that_its_policy_limits(policy: Policy) -> None:
    for siblings in SIBLINGS:
        refusing = [state for state in siblings if state in REFUSED_BY.get(policy, set())]
        assert policy.refusal(siblings) == (refusing[0] if refusing else None), siblings


@every_policy
def test_a_key_is_busy_while_a_job_in_a_blocking_state_exists(policy: Policy) -> None:
    for siblings in SIBLINGS:
        assert policy.is_busy(siblings) == any(s in BLOCKED_BY.get(policy, set()) for s in siblings), siblings


@every_policy
def test_a_released_job_takes_a_slot_that_is_free(policy: Policy) -> None:
    for siblings in SIBLINGS:
        queued_is_free = policy.refusal(siblings) is None
        one_fails = policy == "stately" and "failing" in siblings
        expected = "queued" if queued_is_free else "failed" if one_fails else "failing"
        assert policy.state_after_release("queued", siblings) == expected, siblings
        assert policy.state_after_release("failing", siblings) == ("failed" if one_fails else "failing"), siblings
