"""When each preset of `LeasePolicy` finds a stall, in its own durations, on a clock that the test moves.

A reaper that looks every `reap_interval` finds a job at the first look after its deadline and its patience.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from pgjq import LeasePolicy, MemoryStorage, NewJob
from pgjq.blocking import drive
from pgjq.job_settings import settings as resolve
from pgjq.options import Submission
from pgjq.testing import ManualClock

if TYPE_CHECKING:
    from pgjq.storage.base import Operations

MINUTE = 60


class Timetable:
    """One job that was claimed at 0, heartbeats at some moments, and a reaper that looks every so often."""

    def __init__(self, policy: LeasePolicy, first_look: int, *, beats: int = 0) -> None:
        self.policy = policy
        self.clock = ManualClock()
        self.ops: Operations = MemoryStorage(clock=self.clock).operations("sync")
        drive(self.ops.enqueue("q", [Submission("a", b"", resolve(NewJob("a", None)))]))
        (self.job,) = drive(self.ops.claim(["q"], worker="ann", limit=1, policy=policy))
        self.found = self._read_state(first_look, beats)

    def _read_state(self, first: int, beats: int) -> int:
        """Live second by second, and return the one at which the job was found to be stalled."""
        every, lively = int(self.policy.reap_interval), self.policy.heartbeat or 1
        for second in range(1, 100 * every):
            self.clock.advance(1)
            if second <= beats * lively and second % lively == 0:
                assert drive(self.ops.heartbeat([self.job.lease])).lost == []
            if (
                second >= first
                and (second - first) % every == 0
                and drive(self.ops.reap(stale_age=self.policy.stale_age))
            ):
                return second
        raise AssertionError("it was never found")


def test_visibility_a_job_claimed_at_noon_is_stalled_thirty_seconds_later_whenever_its_worker_crashed() -> None:
    assert Timetable(replace(LeasePolicy.visibility(), reap_interval=1), 1).found == 30


@pytest.mark.parametrize(("first_look", "found"), [(300, 90 * MINUTE), (1, 5401), (150, 5550), (299, 95 * MINUTE - 1)])
def test_stale_lock_a_crash_at_once_is_noticed_between_90_and_95_minutes_later(first_look: int, found: int) -> None:
    """45 minutes of lock, 45 of age, and up to one tick of 5."""
    assert Timetable(LeasePolicy.stale_lock(), first_look).found == found


def test_stale_lock_counts_from_the_last_heartbeat() -> None:
    last = 30 * 2 * MINUTE
    assert last + 90 * MINUTE <= Timetable(LeasePolicy.stale_lock(), 300, beats=30).found < last + 95 * MINUTE


@pytest.mark.parametrize("first_look", [1, 15, 30])
def test_stall_is_noticed_between_one_and_two_intervals_after_the_last_extension(first_look: int) -> None:
    assert 30 <= Timetable(LeasePolicy.stall(), first_look).found < 60
    assert 50 + 30 <= Timetable(LeasePolicy.stall(), first_look, beats=5).found < 50 + 60


@pytest.mark.parametrize("first_look", [1, 31, 60])
def test_monitor_notices_a_dead_worker_within_its_heartbeat_and_one_reap(first_look: int) -> None:
    policy = LeasePolicy.monitor(7200, heartbeat_seconds=300)
    assert 300 <= Timetable(policy, first_look).found < 300 + MINUTE


@pytest.mark.parametrize("first_look", [1, 31, 60])
def test_monitor_ends_an_attempt_after_its_expiration_and_one_reap_even_if_its_worker_lives(first_look: int) -> None:
    policy = LeasePolicy.monitor(heartbeat_seconds=30)
    assert 900 <= Timetable(policy, first_look, beats=59).found < 900 + MINUTE
