"""004, the monitor: attempts of fifteen minutes, heartbeats of one, looked at every minute. Each test has a factor."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.cast import scaled

if TYPE_CHECKING:
    from tests.acceptance.cast import Stage


def test_a_dead_worker_is_found_by_its_silence_long_before_its_attempt_expires(stage: Stage) -> None:
    policy = scaled(LeasePolicy.monitor(expire=900, heartbeat_seconds=60), 1 / 60)
    worker = stage.worker(policy)
    stage.enqueue("orphan", "hang")
    stage.wait("run", "orphan")
    begun = stage.begun("orphan")
    stage.kill(worker)
    stage.worker(policy, concurrency=2)
    stage.enqueue("long", "last", seconds=2.5)
    stage.finished("orphan", "long")
    stalled = stage.wait("stalled", "orphan")
    assert (stalled["reason"], stalled["action"]) == ("lease", "recovered")
    assert begun + timedelta(seconds=1) <= stalled["at"] < begun + timedelta(seconds=15)
    assert len(stage.said("run", "long")) == 1


def test_an_attempt_that_takes_too_long_is_over_whether_its_worker_lives_or_not(stage: Stage) -> None:
    policy = scaled(LeasePolicy.monitor(), 1 / 600)
    alive, stopped = stage.worker(policy), 0
    stage.enqueue("alive", "hang")
    stage.wait("run", "alive")
    stopped = stage.worker(policy)
    stage.enqueue("stopped", "hang")
    stage.wait("run", "stopped")
    begun = stage.begun("stopped")
    stage.signal(stopped, signal.SIGSTOP)
    healthy = stage.worker(policy, concurrency=2)
    stage.finished("alive", "stopped")
    assert alive != healthy
    for job in ("alive", "stopped"):
        assert stage.client.get_result("q", job) == {"by": healthy, "attempts": 2, "checkpoint": None}
    # A living worker counts from when it asked for the job, and so ends the attempt a little earlier than a reaper.
    stalled = stage.wait("stalled", "stopped")
    assert stalled["reason"] == "expired"
    assert stalled["at"] >= begun + timedelta(seconds=900 / 600)
