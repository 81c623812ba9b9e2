"""Locks that a worker no longer renews are released after `stale_age`: `LeasePolicy.stale_lock`."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.processes import scaled

if TYPE_CHECKING:
    from tests.acceptance.processes import Processes

FACTOR = 1 / 2700
STALE_LOCK = scaled(LeasePolicy.stale_lock(), FACTOR)
LOCK_AND_AGE = timedelta(minutes=45 + 45) * FACTOR


def test_locks_that_lapsed_are_released_by_any_worker_and_checkpoints_are_kept(processes: Processes) -> None:
    """A kill, a pause and a partition at once; a job whose worker is well outlasts lock and age undisturbed."""
    network = processes.network()
    pids: dict[str, int] = {}
    for trouble in ("kill", "pause", "partition"):
        pids[trouble] = processes.worker(STALE_LOCK, through=network if trouble == "partition" else None)
        processes.enqueue(trouble, "save")
        assert processes.wait("saved", trouble)["pid"] == pids[trouble]
    begun = {trouble: processes.begun(trouble) for trouble in pids}
    processes.kill(pids["kill"])
    processes.signal(pids["pause"], signal.SIGSTOP)
    network.silence()
    healthy = processes.worker(STALE_LOCK, concurrency=4)
    processes.enqueue("long", "last", seconds=1.5 * LOCK_AND_AGE.total_seconds())
    processes.finished(*pids, "long")
    for trouble in pids:
        result = processes.client.get_result("q", trouble)
        assert result == {"by": healthy, "attempts": 2, "checkpoint": {"page": 7}}
        assert processes.wait("stalled", trouble)["at"] >= begun[trouble] + LOCK_AND_AGE
    assert len(processes.records("run", "long")) == 1
    lines = [line["message"] for line in processes.records("log", pid=healthy) if line["level"] == "INFO"]
    assert sum(int(line.removeprefix("released stale running jobs count=")) for line in lines) == 3
    network.restore()


def test_releasing_never_fails_a_job_but_its_next_failure_does(processes: Processes) -> None:
    processes.worker(STALE_LOCK)
    processes.enqueue("last chance", "die", then="fail", max_attempts=1)
    processes.wait("run", "last chance")
    processes.worker(STALE_LOCK)
    assert processes.wait("stalled", "last chance")["action"] == "recovered"
    processes.wait("failed", "last chance")
    status = processes.status("last chance")
    assert (status.state, status.attempts, status.error and status.error.type) == ("failed", 2, "RuntimeError")


def test_an_interval_of_zero_turns_it_off_with_a_warning(processes: Processes) -> None:
    off = scaled(LeasePolicy.stale_lock(interval=0), FACTOR)
    worker = processes.worker(off)
    warning = processes.wait("log", pid=worker)
    assert (warning["level"], "reap_interval is 0" in warning["message"]) == ("WARNING", True)
