"""A job that stalls more often than allowed fails: `LeasePolicy.stall`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.processes import scaled

if TYPE_CHECKING:
    from tests.acceptance.processes import Processes

FACTOR = 1 / 30
STALL = scaled(LeasePolicy.stall(), FACTOR)


def test_a_job_that_takes_its_workers_down_runs_again_once_and_then_has_failed(processes: Processes) -> None:
    processes.reaper(STALL)
    workers = [processes.worker(STALL)]
    processes.enqueue("poison", "die", times=9)
    assert processes.wait("stalled", "poison")["action"] == "recovered"
    workers.append(processes.worker(STALL))
    processes.wait("stalled", "poison", times=2)
    told = [(e["queue"], e["count"], e["action"], e["reason"]) for e in processes.records("stalled", "poison")]
    assert told == [("q", 1, "recovered", "lease"), ("q", 2, "failed", "lease")]
    status = processes.status("poison")
    assert (status.state, status.stalled) == ("failed", 2)
    assert status.stalled_on == tuple(f"worker-{pid}" for pid in workers)
    assert status.error is not None
    assert status.error.message == f"its worker went silent (worker worker-{workers[1]})"


def test_a_cancelled_job_that_stalls_is_cancelled_and_one_that_beats_does_not_stall(processes: Processes) -> None:
    worker = processes.worker(STALL)
    processes.enqueue("cancelled", "hang")
    processes.wait("run", "cancelled")
    processes.kill(worker)
    assert processes.client.cancel("q", "cancelled", active=True).status == "processing"
    processes.worker(replace(STALL, heartbeat=None), concurrency=2)
    processes.enqueue("beating", "beat", beats=4, seconds=0.5)
    processes.wait("stalled", "cancelled")
    processes.finished("beating")
    (told,) = processes.records("stalled")
    assert (told["id"], told["count"], told["action"]) == ("cancelled", 0, "cancelled")
    assert processes.status("cancelled").state == "cancelled"
    assert len(processes.records("run", "beating")) == 1
