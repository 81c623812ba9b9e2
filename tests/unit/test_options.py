"""What callers pass in: what is taken, what it becomes, and what is refused."""

from __future__ import annotations

import math
from dataclasses import fields
from datetime import UTC, datetime, timedelta, timezone
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq import NewJob, ValidationError
from pgjq.ids import make_ids
from pgjq.job_settings import new_job, settings
from pgjq.options import (
    ID_LENGTH,
    LONGEST,
    NO_OPTIONS,
    SHORTEST,
    JobOptions,
    Settings,
    check_datetime,
    check_id,
    check_int,
    check_queue,
    check_seconds,
    check_state,
)

in_any_time = running(deadline=None)

finite = st.floats(allow_nan=False, allow_infinity=False)
text = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)


@in_any_time
@given(st.one_of(st.integers(min_value=0), finite.filter(lambda x: x >= 0), st.timedeltas(min_value=timedelta(0))))
def test_a_duration_becomes_seconds_from_a_microsecond_to_a_century_or_0(value: float | timedelta) -> None:
    expected = value.total_seconds() if isinstance(value, timedelta) else value
    got = check_seconds("delay", value, at_least=0)
    assert type(got) is float
    assert got == (min(max(expected, SHORTEST), LONGEST) if expected else 0)


@in_any_time
@given(st.one_of(finite, st.integers(), st.timedeltas()), st.floats(-1e9, 1e9))
def test_a_duration_is_refused_exactly_when_it_is_below_its_bound(value: float | timedelta, bound: float) -> None:
    size = value.total_seconds() if isinstance(value, timedelta) else value
    assert is_refused(check_seconds, "d", value, at_least=bound) == (size < bound)
    assert is_refused(check_seconds, "d", value, above=bound) == (size <= bound)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "5", True, None, 1j, b"1", [1]])
def test_what_is_no_finite_number_is_no_duration(value: Any) -> None:
    with pytest.raises(ValidationError, match="result_ttl must be"):
        check_seconds("result_ttl", value)


def test_a_number_beyond_all_floats_is_a_century() -> None:
    assert check_seconds("delay", 10**400) == LONGEST


@in_any_time
@given(st.datetimes(timezones=st.timezones(), min_value=datetime(3, 1, 1), max_value=datetime(9997, 1, 1)))  # noqa: DTZ001
def test_an_aware_datetime_is_the_same_moment_afterwards(value: datetime) -> None:
    assert check_datetime("run_at", value).timestamp() == value.timestamp()


@in_any_time
@given(st.datetimes())
def test_a_naive_datetime_is_refused_with_advice(value: datetime) -> None:
    with pytest.raises(ValidationError, match=r"run_at must have a time zone.*datetime\.now\(timezone\.utc\)"):
        check_datetime("run_at", value)


@pytest.mark.parametrize("value", ["2030-01-01", 5, None, datetime(2030, 1, 1, tzinfo=UTC).date()])
def test_what_is_no_datetime_is_no_moment(value: Any) -> None:
    with pytest.raises(ValidationError, match="run_at must be a datetime"):
        check_datetime("run_at", value)


@in_any_time
@given(st.integers(), st.integers(), st.integers())
def test_a_whole_number_is_taken_exactly_when_it_is_within_its_bounds(value: int, low: int, high: int) -> None:
    assert is_refused(check_int, "n", value, low, high) == (not low <= value <= high)


@pytest.mark.parametrize("value", [1.0, "1", True, None])
def test_what_is_no_int_is_no_whole_number(value: Any) -> None:
    with pytest.raises(ValidationError, match="priority must be a whole number"):
        check_int("priority", value, 0)


@in_any_time
@given(st.text(min_size=1, max_size=600))
def test_an_id_is_taken_exactly_when_every_storage_can_hold_it(value: str) -> None:
    holdable = len(value) <= ID_LENGTH and "\0" not in value and not any(0xD800 <= ord(c) < 0xE000 for c in value)
    assert is_refused(check_id, value) != holdable


@pytest.mark.parametrize("value", ["a:b", "a/b", " ", "\n", "x" * 512, "作業", "😀" * 512, "'; drop table jobs; --"])
def test_odd_ids_are_ids(value: str) -> None:
    assert check_id(value) == value


def test_a_kind_of_str_becomes_a_str() -> None:
    class Name(str):
        __slots__ = ()

    assert type(check_id(Name("one"))) is str


@in_any_time
@given(text.filter(lambda name: len(name) <= 128))
def test_a_queue_may_have_any_name_without_control_characters(name: str) -> None:
    assert check_queue(name) == name


@pytest.mark.parametrize("name", ["", "q" * 129, "\0", "\t", "\x7f", "\x85", "\ud800", None, 5, b"q"])
def test_other_names_are_refused(name: Any) -> None:
    with pytest.raises(ValidationError, match="a queue's name must"):
        check_queue(name)


def test_a_state_is_one_of_six() -> None:
    names = ["queued", "processing", "failing", "completed", "failed", "cancelled"]
    assert [check_state(name) for name in names] == names
    with pytest.raises(ValidationError, match="queued, processing, failing, completed, failed, cancelled"):
        check_state("pending")


def test_options_that_were_not_given_have_the_contracts_defaults() -> None:
    assert settings(NewJob("one", 1)) == Settings(
        result_ttl=3600.0,
        max_attempts=None,
        priority=0,
        run_at=None,
        delay=0.0,
        singleton_key=None,
        on_failed="enqueue",
        options=NO_OPTIONS,
    )


def test_the_time_to_live_of_the_call_goes_before_that_of_the_queue() -> None:
    usual = Settings(result_ttl=60)
    assert settings(NewJob("one", 1), usual).result_ttl == 60
    assert settings(NewJob("one", 1, result_ttl=timedelta(minutes=5)), usual).result_ttl == 300


@pytest.mark.parametrize(
    ("given_options", "expected"),
    [
        ({}, None),
        ({"max_attempts": 5}, 5),
        ({"retry_limit": 0}, 1),
        ({"retry_limit": 4}, 5),
        ({"retry_limit": 4, "max_attempts": 5}, 5),
    ],
)
def test_attempts_are_one_more_than_retries(given_options: dict[str, int], expected: int | None) -> None:
    assert settings(NewJob("one", 1, **given_options)).max_attempts == expected


def test_attempts_and_retries_that_disagree_are_refused() -> None:
    with pytest.raises(ValidationError, match="disagree"):
        settings(NewJob("one", 1, retry_limit=4, max_attempts=4))


def test_options_for_later_are_seconds_and_only_those_that_were_set() -> None:
    job = NewJob("one", 1, retry_delay=timedelta(seconds=2), retry_backoff=True, delete_after_seconds=0)
    resolved = settings(job).options
    assert resolved == JobOptions(retry_delay=2.0, retry_backoff=True, delete_after_seconds=0.0)
    assert resolved.set_values() == {"retry_delay": 2.0, "retry_backoff": True, "delete_after_seconds": 0.0}


def test_equal_settings_are_equal_and_hashable_so_that_a_batch_can_share_them() -> None:
    one, other = (settings(NewJob(id, 1, delay=5, retry_delay=3)) for id in ("one", "other"))  # noqa: A001
    assert one == other
    assert hash(one) == hash(other)


def test_an_unknown_option_is_named_beside_those_that_are_known() -> None:
    with pytest.raises(ValidationError) as caught:
        new_job("one", 1, {"prioritty": 1, "dealy": 2})
    assert "unknown option dealy, prioritty" in str(caught.value)
    for field in fields(NewJob)[2:]:
        assert field.name in str(caught.value)


def test_known_options_make_a_job() -> None:
    assert new_job("one", {"a": 1}, {"priority": 5}) == NewJob("one", {"a": 1}, priority=5)


def test_made_ids_are_good_ids_that_ascend_and_never_repeat() -> None:
    batches = [list(islice(make_ids(), 1000)) for _ in range(20)]
    every = [made for batch in batches for made in batch]
    assert len(set(every)) == len(every)
    for batch in batches:
        assert batch == sorted(batch)
    assert [check_id(made) for made in every] == every


def test_a_time_zone_with_odd_seconds_is_a_time_zone() -> None:
    value = datetime(2030, 1, 1, tzinfo=timezone(timedelta(hours=1, seconds=7, microseconds=5)))
    assert check_datetime("run_at", value).timestamp() == value.timestamp()


def is_refused(check: Any, *arguments: Any, **options: Any) -> bool:
    try:
        check(*arguments, **options)
    except ValidationError:
        return True
    return False
