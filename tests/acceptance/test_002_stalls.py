"""002, stall detection: not extended between two checks, thirty seconds apart; one stall is allowed. A second apart."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.cast import scaled

if TYPE_CHECKING:
    from tests.acceptance.cast import Stage

FACTOR = 1 / 30
STALL = scaled(LeasePolicy.stall(), FACTOR)


def test_a_job_that_takes_its_workers_down_runs_again_once_and_then_has_failed(stage: Stage) -> None:
    stage.reaper(STALL)
    workers = [stage.worker(STALL)]
    stage.enqueue("poison", "die", times=9)
    assert stage.wait("stalled", "poison")["action"] == "recovered"
    workers.append(stage.worker(STALL))
    stage.wait("stalled", "poison", times=2)
    told = [(e["queue"], e["count"], e["action"], e["reason"]) for e in stage.said("stalled", "poison")]
    assert told == [("q", 1, "recovered", "lease"), ("q", 2, "failed", "lease")]
    status = stage.status("poison")
    assert (status.state, status.stalled) == ("failed", 2)
    assert status.stalled_on == tuple(f"worker-{pid}" for pid in workers)
    assert status.error is not None
    assert status.error.message == f"its worker went silent (worker worker-{workers[1]})"


def test_a_cancelled_job_that_stalls_is_cancelled_and_one_that_beats_does_not_stall(stage: Stage) -> None:
    worker = stage.worker(STALL)
    stage.enqueue("cancelled", "hang")
    stage.wait("run", "cancelled")
    stage.kill(worker)
    assert stage.client.cancel("q", "cancelled", active=True).status == "processing"
    stage.worker(replace(STALL, heartbeat=None), concurrency=2)
    stage.enqueue("beating", "beat", beats=4, seconds=0.5)
    stage.wait("stalled", "cancelled")
    stage.finished("beating")
    (told,) = stage.said("stalled")
    assert (told["id"], told["count"], told["action"]) == ("cancelled", 0, "cancelled")
    assert stage.status("cancelled").state == "cancelled"
    assert len(stage.said("run", "beating")) == 1
