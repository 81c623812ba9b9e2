"""000, the reaper: a job is stalled thirty seconds after its claim, whatever became of its worker. Here after one."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pgjq import LeaderElection, LeasePolicy
from tests.acceptance.cast import scaled

if TYPE_CHECKING:
    from tests.acceptance.cast import Stage

FACTOR = 1 / 30
TIMEOUT = timedelta(seconds=30 * FACTOR)
VISIBLE = scaled(LeasePolicy.visibility(), FACTOR)
# In 000 a worker does not reap; the reaper stands alone.
WORKER = replace(VISIBLE, reap_interval=0)
ELECTION = LeaderElection(
    enabled=True, lock_ttl=30 * FACTOR, renewal_interval=10 * FACTOR, acquire_retry_interval=5 * FACTOR
)


def test_a_job_is_requeued_when_its_time_is_over_and_not_before(stage: Stage) -> None:
    """A crash, a machine that stands still, a hang, a partition: all four at once, then a healthy worker."""
    network = stage.network()
    pids: dict[str, int] = {}
    for trouble in ("crash", "freeze", "partition", "hang"):
        pids[trouble] = stage.worker(WORKER, through=network if trouble == "partition" else None)
        stage.enqueue(trouble, "hang")
        assert stage.wait("run", trouble)["pid"] == pids[trouble]
    claimed = {trouble: stage.begun(trouble) for trouble in pids}
    stage.reaper(VISIBLE)  # Not before: starting four workers may take longer than a second.
    stage.kill(pids["crash"])
    stage.signal(pids["freeze"], signal.SIGSTOP)
    network.silence()
    healthy = stage.worker(WORKER, concurrency=4)
    stage.finished(*pids)
    for trouble in pids:
        stalled = stage.wait("stalled", trouble)
        assert (stalled["action"], stalled["count"], stalled["reason"]) == ("recovered", 1, "lease")
        assert stalled["at"] >= claimed[trouble] + TIMEOUT
        assert stage.client.get_result("q", trouble) == {"by": healthy, "attempts": 2, "checkpoint": None}
    network.restore()


def test_what_stalled_before_the_reaper_started_is_found(stage: Stage) -> None:
    worker = stage.worker(WORKER)
    stage.enqueue("early", "hang")
    stage.wait("run", "early")
    stage.kill(worker)
    stage.until(lambda: stage.clock() >= stage.begun("early") + TIMEOUT)
    stage.reaper(VISIBLE)
    assert stage.wait("stalled", "early")["action"] == "recovered"


def test_a_single_worker_that_crashed_picks_its_job_up_when_it_is_started_again(stage: Stage) -> None:
    worker = stage.worker(VISIBLE)
    stage.enqueue("mine", "hang")
    stage.wait("run", "mine")
    stage.kill(worker)
    again = stage.worker(VISIBLE)
    stage.finished("mine")
    assert stage.client.get_result("q", "mine")["by"] == again


def test_three_workers_and_two_reapers_outlive_a_leader_and_a_worker(stage: Stage) -> None:
    """The deployment that the document recommends."""
    workers = [stage.worker(WORKER, concurrency=10) for _ in range(3)]
    stage.reaper(VISIBLE, ELECTION)
    leader = stage.wait("leads")["pid"]
    heir = stage.reaper(VISIBLE, ELECTION)
    stage.enqueue("stuck", "hang")
    for n in range(60):
        stage.enqueue(f"{n}", "last", seconds=0.1)
    stuck = stage.wait("run", "stuck")["pid"]
    stage.kill(leader)
    stage.kill(stuck)
    assert stage.wait("leads", times=2)["pid"] == heir
    stage.finished("stuck", *(f"{n}" for n in range(60)))
    assert {event["pid"] for event in stage.said("stalled")} == {heir}
    assert stage.client.get_result("q", "stuck")["by"] in set(workers) - {stuck}
