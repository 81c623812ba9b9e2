"""What a definition may say, what it may not, and who wins."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from pgjq import NewJob, ValidationError
from pgjq.definition import DEFAULTS, check_changes, define, inherit
from pgjq.job_settings import settings
from pgjq.options import DEFAULT_SETTINGS
from pgjq.policy import POLICIES, SLOTS, Policy

REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "an unknown policy": ({"policy": "fifo"}, "policy must be one of standard, short"),
    "a policy that is no name": ({"policy": None}, "policy must be one of"),
    "a partition that is no bool": ({"partition": 1}, "partition must be True or False"),
    "its own dead letter": ({"dead_letter": "q"}, "its own dead letter"),
    "a dead letter without a name": ({"dead_letter": ""}, "1 to 128 characters"),
    "a warning at nothing": ({"warning_queue_size": 0}, "between 1 and"),
    "a warning at a fraction": ({"warning_queue_size": 1.5}, "whole number"),
    "a negative retry_limit": ({"retry_limit": -1}, "between 0 and 32766"),
    "too many retries": ({"retry_limit": 32767}, "between 0 and 32766"),
    "a negative retry_delay": ({"retry_delay": -0.1}, "at least 0"),
    "an endless retry_delay": ({"retry_delay": float("inf")}, "finite"),
    "a backoff that is no bool": ({"retry_backoff": "yes"}, "True or False"),
    "a negative retry_delay_max": ({"retry_delay_max": -1}, "at least 0"),
    "a heartbeat below ten": ({"heartbeat_seconds": 9.99}, "at least 10"),
    "an expiration below one": ({"expire_in_seconds": 0.99}, "at least 1"),
    "a retention below one": ({"retention_seconds": timedelta(seconds=0.5)}, "at least 1"),
    "a negative delete_after": ({"delete_after_seconds": -1}, "at least 0"),
    "an unknown option": ({"retries": 3}, "unknown option retries; the options are retry_limit"),
}
ACCEPTED: list[dict[str, Any]] = [
    {"heartbeat_seconds": 10},
    {"expire_in_seconds": 1},
    {"expire_in_seconds": 86400},
    {"expire_in_seconds": timedelta(days=3)},
    {"retention_seconds": 1},
    {"delete_after_seconds": 0},
    {"retry_limit": 0},
    {"retry_limit": 32766},
]


def create(given: Any) -> Any:
    return define("q", given)


@pytest.mark.parametrize("what", REFUSED)
def test_bad_definitions_are_refused(what: str) -> None:
    given, message = REFUSED[what]
    with pytest.raises(ValidationError, match=message):
        create(given)


@pytest.mark.parametrize(
    "what", [what for what, (given, _) in REFUSED.items() if not {"policy", "partition"} & set(given)]
)
def test_bad_changes_are_refused(what: str) -> None:
    given, message = REFUSED[what]
    with pytest.raises(ValidationError, match=message):
        check_changes("q", given)


@pytest.mark.parametrize("fixed", [{"policy": "standard"}, {"partition": False}])
def test_what_cannot_be_changed_is_refused(fixed: dict[str, Any]) -> None:
    with pytest.raises(ValidationError, match="cannot be changed"):
        check_changes("q", fixed)


@pytest.mark.parametrize("given", ACCEPTED)
def test_the_last_value_that_will_do_does(given: dict[str, Any]) -> None:
    ((name, value),) = create(given).options.items()
    assert value == (given[name].total_seconds() if isinstance(given[name], timedelta) else given[name])


def test_a_definition_holds_what_was_set() -> None:
    assert create({"retry_limit": None, "retry_delay": 0}).options == {"retry_delay": 0}


def test_the_defaults_are_those_of_the_contract() -> None:
    day = 86400
    assert {
        "retry_limit": 2,
        "retry_delay": 0,
        "retry_backoff": False,
        "retry_delay_max": None,
        "heartbeat_seconds": None,
        "expire_in_seconds": 900,
        "retention_seconds": 14 * day,
        "delete_after_seconds": 7 * day,
        "dead_letter": None,
    } == DEFAULTS


def test_a_job_keeps_what_it_sets_and_inherits_the_rest() -> None:
    job = settings(NewJob(None, None, retry_delay=1))
    merged = inherit(job, {"retry_limit": 5, "retry_delay": 9, "retry_backoff": True})
    assert (merged.max_attempts, merged.options.retry_delay, merged.options.retry_backoff) == (6, 1, True)
    assert inherit(settings(NewJob(None, None, max_attempts=2)), {"retry_limit": 5}).max_attempts == 2
    assert inherit(DEFAULT_SETTINGS, {}) is DEFAULT_SETTINGS


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"singleton_seconds": 0.5}, "at least 1"),
        ({"debounce": 0}, "at least 1"),
        ({"debounce": 5, "singleton_seconds": 5}, "not both"),
        ({"singleton_next_slot": True}, "needs singleton_seconds"),
        ({"singleton_next_slot": 2, "singleton_seconds": 5}, "True or False"),
        ({"singleton_next_slot": 1.0, "singleton_seconds": 5}, "True or False"),
        ({"dead_letter": "a\nb"}, "control characters"),
    ],
)
def test_bad_slots_and_letters_of_a_job_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        settings(NewJob(None, None, **given))


def test_a_debounce_is_a_slot_or_the_next_one() -> None:
    slot = settings(NewJob(None, None, debounce=5))
    assert (slot.singleton_seconds, slot.singleton_next_slot) == (5, True)


@pytest.mark.parametrize(
    ("policy", "queued", "processing", "failing"),
    [
        ("standard", None, None, None),
        ("short", "queued", None, None),
        ("singleton", None, "processing", None),
        ("stately", "queued", "processing", "failing"),
        ("exclusive", "live", "live", "live"),
        ("key_strict_fifo", None, "first", "first"),
    ],
)
def test_each_policy_has_its_slots(policy: Any, queued: Any, processing: Any, failing: Any) -> None:
    slot = Policy(policy).slot
    assert (slot("queued"), slot("processing"), slot("failing")) == (queued, processing, failing)
    assert all(slot(ended) is None for ended in ("completed", "failed", "cancelled"))  # type: ignore[arg-type]


def test_the_rules_by_example() -> None:
    assert Policy.SHORT.refusal(["processing", "failing"]) is None
    assert Policy.SHORT.refusal(["queued"]) == "queued"
    assert Policy.EXCLUSIVE.refusal(["failing"]) == "failing"
    assert Policy.KEY_STRICT_FIFO.is_busy(["failed"])
    assert not Policy.SINGLETON.is_busy(["failed", "failing", "queued"])
    assert Policy.STATELY.state_after_release("failing", ["failing"]) == "failed"
    assert Policy.STATELY.state_after_release("failing", ["queued"]) == "failing"
    assert Policy.SHORT.state_after_release("queued", ["queued"]) == "failing"
    assert Policy.SINGLETON.state_after_release("queued", ["queued", "failing"]) == "queued"
    assert Policy.of_queue(8) is Policy.STANDARD
    assert tuple(Policy) == POLICIES == tuple(SLOTS)
    assert [policy.number for policy in Policy] == list(range(6))
