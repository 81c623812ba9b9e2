"""001, stale locks: locked for 45 minutes, renewed every two, stale 45 later, looked for every five. 45 as a second."""

from __future__ import annotations

import signal
from datetime import timedelta
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.cast import scaled

if TYPE_CHECKING:
    from tests.acceptance.cast import Stage

FACTOR = 1 / 2700
STALE_LOCK = scaled(LeasePolicy.stale_lock(), FACTOR)
LOCK_AND_AGE = timedelta(minutes=45 + 45) * FACTOR


def test_locks_that_lapsed_are_released_by_any_worker_and_checkpoints_are_kept(stage: Stage) -> None:
    """A kill, a pause and a partition at once; a job whose worker is well outlasts lock and age undisturbed."""
    network = stage.network()
    pids: dict[str, int] = {}
    for trouble in ("kill", "pause", "partition"):
        pids[trouble] = stage.worker(STALE_LOCK, through=network if trouble == "partition" else None)
        stage.enqueue(trouble, "save")
        assert stage.wait("saved", trouble)["pid"] == pids[trouble]
    begun = {trouble: stage.begun(trouble) for trouble in pids}
    stage.kill(pids["kill"])
    stage.signal(pids["pause"], signal.SIGSTOP)
    network.silence()
    healthy = stage.worker(STALE_LOCK, concurrency=4)
    stage.enqueue("long", "last", seconds=1.5 * LOCK_AND_AGE.total_seconds())
    stage.finished(*pids, "long")
    for trouble in pids:
        result = stage.client.get_result("q", trouble)
        assert result == {"by": healthy, "attempts": 2, "checkpoint": {"page": 7}}
        assert stage.wait("stalled", trouble)["at"] >= begun[trouble] + LOCK_AND_AGE
    assert len(stage.said("run", "long")) == 1
    lines = [line["message"] for line in stage.said("log", pid=healthy) if line["level"] == "INFO"]
    assert sum(int(line.removeprefix("released stale running jobs count=")) for line in lines) == 3
    network.restore()


def test_releasing_never_fails_a_job_but_its_next_failure_does(stage: Stage) -> None:
    stage.worker(STALE_LOCK)
    stage.enqueue("last chance", "die", then="fail", max_attempts=1)
    stage.wait("run", "last chance")
    stage.worker(STALE_LOCK)
    assert stage.wait("stalled", "last chance")["action"] == "recovered"
    stage.wait("failed", "last chance")
    status = stage.status("last chance")
    assert (status.state, status.attempts, status.error and status.error.type) == ("failed", 2, "RuntimeError")


def test_an_interval_of_zero_turns_it_off_with_a_warning(stage: Stage) -> None:
    off = scaled(LeasePolicy.stale_lock(interval=0), FACTOR)
    worker = stage.worker(off)
    warning = stage.wait("log", pid=worker)
    assert (warning["level"], "reap_interval is 0" in warning["message"]) == ("WARNING", True)
