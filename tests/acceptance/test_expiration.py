"""Silent workers and attempts that take too long are found by heartbeats and by `expire`."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.processes import scaled

if TYPE_CHECKING:
    from tests.acceptance.processes import Processes


def test_a_dead_worker_is_found_by_its_silence_long_before_its_attempt_expires(processes: Processes) -> None:
    policy = scaled(LeasePolicy.monitor(expire=900, heartbeat_seconds=60), 1 / 60)
    worker = processes.worker(policy)
    processes.enqueue("orphan", "hang")
    processes.wait("run", "orphan")
    begun = processes.begun("orphan")
    processes.kill(worker)
    processes.worker(policy, concurrency=2)
    processes.enqueue("long", "last", seconds=2.5)
    processes.finished("orphan", "long")
    stalled = processes.wait("stalled", "orphan")
    assert (stalled["reason"], stalled["action"]) == ("lease", "recovered")
    assert begun + timedelta(seconds=1) <= stalled["at"] < begun + timedelta(seconds=15)
    assert len(processes.records("run", "long")) == 1


def test_an_attempt_that_takes_too_long_is_over_whether_its_worker_lives_or_not(processes: Processes) -> None:
    policy = scaled(LeasePolicy.monitor(), 1 / 600)
    alive, stopped = processes.worker(policy), 0
    processes.enqueue("alive", "hang")
    processes.wait("run", "alive")
    stopped = processes.worker(policy)
    processes.enqueue("stopped", "hang")
    processes.wait("run", "stopped")
    begun = processes.begun("stopped")
    processes.signal(stopped, signal.SIGSTOP)
    healthy = processes.worker(policy, concurrency=2)
    processes.finished("alive", "stopped")
    assert alive != healthy
    for job in ("alive", "stopped"):
        assert processes.client.get_result("q", job) == {"by": healthy, "attempts": 2, "checkpoint": None}
    # A living worker counts from when it asked for the job, and so ends the attempt a little earlier than a reaper.
    stalled = processes.wait("stalled", "stopped")
    assert stalled["reason"] == "expired"
    assert stalled["at"] >= begun + timedelta(seconds=900 / 600)
