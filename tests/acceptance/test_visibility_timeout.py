"""A job is stalled a fixed time after its claim, with or without a living worker: `LeasePolicy.visibility`."""

from __future__ import annotations

import signal
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from pgjq import LeaderElection, LeasePolicy
from tests.acceptance.processes import scaled

if TYPE_CHECKING:
    from tests.acceptance.processes import Processes

FACTOR = 1 / 30
TIMEOUT = timedelta(seconds=30 * FACTOR)
VISIBLE = scaled(LeasePolicy.visibility(), FACTOR)
# In 000 a worker does not reap; the reaper stands alone.
WORKER = replace(VISIBLE, reap_interval=0)
ELECTION = LeaderElection(
    enabled=True, lock_ttl=30 * FACTOR, renewal_interval=10 * FACTOR, acquire_retry_interval=5 * FACTOR
)


def test_a_job_is_requeued_when_its_time_is_over_and_not_before(processes: Processes) -> None:
    """A crash, a machine that stands still, a hang, a partition: all four at once, then a healthy worker."""
    network = processes.network()
    pids: dict[str, int] = {}
    for trouble in ("crash", "freeze", "partition", "hang"):
        pids[trouble] = processes.worker(WORKER, through=network if trouble == "partition" else None)
        processes.enqueue(trouble, "hang")
        assert processes.wait("run", trouble)["pid"] == pids[trouble]
    claimed = {trouble: processes.begun(trouble) for trouble in pids}
    processes.reaper(VISIBLE)  # Not before: starting four workers may take longer than a second.
    processes.kill(pids["crash"])
    processes.signal(pids["freeze"], signal.SIGSTOP)
    network.silence()
    healthy = processes.worker(WORKER, concurrency=4)
    processes.finished(*pids)
    for trouble in pids:
        stalled = processes.wait("stalled", trouble)
        assert (stalled["action"], stalled["count"], stalled["reason"]) == ("recovered", 1, "lease")
        assert stalled["at"] >= claimed[trouble] + TIMEOUT
        assert processes.client.get_result("q", trouble) == {"by": healthy, "attempts": 2, "checkpoint": None}
    network.restore()


def test_what_stalled_before_the_reaper_started_is_found(processes: Processes) -> None:
    worker = processes.worker(WORKER)
    processes.enqueue("early", "hang")
    processes.wait("run", "early")
    processes.kill(worker)
    processes.until(lambda: processes.clock() >= processes.begun("early") + TIMEOUT)
    processes.reaper(VISIBLE)
    assert processes.wait("stalled", "early")["action"] == "recovered"


def test_a_single_worker_that_crashed_picks_its_job_up_when_it_is_started_again(processes: Processes) -> None:
    worker = processes.worker(VISIBLE)
    processes.enqueue("mine", "hang")
    processes.wait("run", "mine")
    processes.kill(worker)
    again = processes.worker(VISIBLE)
    processes.finished("mine")
    assert processes.client.get_result("q", "mine")["by"] == again


def test_three_workers_and_two_reapers_outlive_a_leader_and_a_worker(processes: Processes) -> None:
    """The deployment that the document recommends."""
    workers = [processes.worker(WORKER, concurrency=10) for _ in range(3)]
    processes.reaper(VISIBLE, ELECTION)
    leader = processes.wait("leads")["pid"]
    heir = processes.reaper(VISIBLE, ELECTION)
    processes.enqueue("stuck", "hang")
    for n in range(60):
        processes.enqueue(f"{n}", "last", seconds=0.1)
    stuck = processes.wait("run", "stuck")["pid"]
    processes.kill(leader)
    processes.kill(stuck)
    assert processes.wait("leads", times=2)["pid"] == heir
    processes.finished("stuck", *(f"{n}" for n in range(60)))
    assert {event["pid"] for event in processes.records("stalled")} == {heir}
    assert processes.client.get_result("q", "stuck")["by"] in set(workers) - {stuck}
