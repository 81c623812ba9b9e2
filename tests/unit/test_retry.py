"""When a job that failed runs again: the contract's formula."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import settings as running
from hypothesis import strategies as st

from pgjq.options import LONGEST, JobOptions
from pgjq.retry import retry_delay

in_any_time = running(deadline=None)

retries = st.integers(1, 100)
chances = st.floats(0, 1, exclude_max=True)
delays = st.floats(0.001, LONGEST / 2**16)  # of which no power is longer than a century


@in_any_time
@given(retries, chances)
def test_without_options_a_retry_is_at_once(retry: int, chance: float) -> None:
    assert retry_delay(JobOptions(), retry, chance) == 0


@in_any_time
@given(delays, retries, chances)
def test_without_backoff_the_delay_is_the_same_each_time(delay: float, retry: int, chance: float) -> None:
    assert retry_delay(JobOptions(retry_delay=delay, retry_backoff=False), retry, chance) == delay


@in_any_time
@given(delays, retries, chances)
def test_with_backoff_the_delay_is_between_half_and_the_whole_of_a_power_of_two(
    delay: float, retry: int, chance: float
) -> None:
    whole = delay * 2.0 ** min(16, retry)
    got = retry_delay(JobOptions(retry_delay=delay, retry_backoff=True), retry, chance)
    assert whole / 2 * (1 - 1e-12) <= got <= whole


@in_any_time
@given(delays, delays, retries, chances)
def test_no_delay_is_longer_than_the_longest(delay: float, longest: float, retry: int, chance: float) -> None:
    options = JobOptions(retry_delay=delay, retry_backoff=True, retry_delay_max=longest)
    unbounded = retry_delay(JobOptions(retry_delay=delay, retry_backoff=True), retry, chance)
    assert retry_delay(options, retry, chance) == min(longest, unbounded)


@in_any_time
@given(retries, chances)
def test_backoff_without_a_delay_starts_from_one_second(retry: int, chance: float) -> None:
    expected = retry_delay(JobOptions(retry_delay=1.0, retry_backoff=True), retry, chance)
    assert retry_delay(JobOptions(retry_backoff=True), retry, chance) == expected
    assert retry_delay(JobOptions(retry_delay=0.0, retry_backoff=True), retry, chance) == expected


@pytest.mark.parametrize(("retry", "expected"), [(1, 1), (2, 2), (3, 4), (10, 512), (16, 32768), (17, 32768)])
def test_the_delay_doubles_until_the_sixteenth_retry(retry: int, expected: float) -> None:
    assert retry_delay(JobOptions(retry_backoff=True), retry, 0.0) == expected
    assert retry_delay(JobOptions(retry_backoff=True), retry, 0.5) == expected * 1.5


@in_any_time
@given(delays, delays, retries, chances)
def test_the_longest_delay_is_for_backoff_alone(delay: float, longest: float, retry: int, chance: float) -> None:
    assert retry_delay(JobOptions(retry_delay=delay, retry_delay_max=longest), retry, chance) == delay


@pytest.mark.parametrize("longest", [None, LONGEST])
def test_no_backoff_is_longer_than_a_century(longest: float | None) -> None:
    options = JobOptions(retry_delay=LONGEST, retry_backoff=True, retry_delay_max=longest)
    assert retry_delay(options, 16, 0.5) == LONGEST
