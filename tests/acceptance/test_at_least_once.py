"""Every job runs at least once and has one result, also if its worker stops or dies."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.processes import scaled

if TYPE_CHECKING:
    from tests.acceptance.processes import Processes

FACTOR = 1 / 30
VISIBLE = scaled(LeasePolicy.visibility(), FACTOR)


def test_a_worker_that_stops_in_order_gives_its_job_back_at_once(processes: Processes) -> None:
    """The lease is longer than any test: the worker that runs the job next did not wait for it."""
    patient = LeasePolicy.visibility(3600)
    first = processes.worker(patient)
    processes.enqueue("handed over", "hang")
    processes.wait("run", "handed over")
    second = processes.worker(patient)
    processes.signal(first, signal.SIGTERM)
    processes.finished("handed over")
    assert processes.client.get_result("q", "handed over") == {"by": second, "attempts": 1, "checkpoint": None}


def test_a_late_result_is_refused_and_an_id_stays_one_job_all_the_while(processes: Processes) -> None:
    late = processes.worker(VISIBLE)
    processes.enqueue("slow", "last", seconds=0.2, times=1)
    processes.wait("run", "slow")
    processes.signal(late, signal.SIGSTOP)
    assert processes.client.enqueue("q", "slow", {}).status == "duplicate"
    other = processes.worker(VISIBLE)
    processes.finished("slow")
    processes.signal(late, signal.SIGCONT)
    processes.wait("end", "slow", pid=late)
    # The worker notices the loss by itself, or learns it when its outcome is refused; one line says so.
    processes.until(lambda: any("lease" in line["message"] for line in processes.records("log", pid=late)))
    again = processes.client.enqueue("q", "slow", {})
    assert (again.status, again.result["by"]) == ("completed", other)


def test_work_that_was_done_but_not_acknowledged_is_done_again(processes: Processes) -> None:
    processes.worker(VISIBLE)
    processes.enqueue("twice", "work_and_die", then="last", seconds=0)
    processes.wait("end", "twice")
    processes.worker(VISIBLE)
    processes.finished("twice")
    assert len(processes.records("end", "twice")) == 2
