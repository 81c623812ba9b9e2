"""003, the reliable queue: at least once, one result; recovery at once, or after thirty seconds, which are one here."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from pgjq import LeasePolicy
from tests.acceptance.cast import scaled

if TYPE_CHECKING:
    from tests.acceptance.cast import Stage

FACTOR = 1 / 30
VISIBLE = scaled(LeasePolicy.visibility(), FACTOR)


def test_a_worker_that_stops_in_order_gives_its_job_back_at_once(stage: Stage) -> None:
    """The lease is longer than any test: whoever runs the job next did not wait for it."""
    patient = LeasePolicy.visibility(3600)
    first = stage.worker(patient)
    stage.enqueue("handed over", "hang")
    stage.wait("run", "handed over")
    second = stage.worker(patient)
    stage.signal(first, signal.SIGTERM)
    stage.finished("handed over")
    assert stage.client.get_result("q", "handed over") == {"by": second, "attempts": 1, "checkpoint": None}


def test_a_late_result_is_refused_and_an_id_stays_one_job_all_the_while(stage: Stage) -> None:
    late = stage.worker(VISIBLE)
    stage.enqueue("slow", "last", seconds=0.2, times=1)
    stage.wait("run", "slow")
    stage.signal(late, signal.SIGSTOP)
    assert stage.client.enqueue("q", "slow", {}).status == "duplicate"
    other = stage.worker(VISIBLE)
    stage.finished("slow")
    stage.signal(late, signal.SIGCONT)
    stage.wait("end", "slow", pid=late)
    # The worker notices the loss by itself, or learns it when its outcome is refused; one line says so.
    stage.until(lambda: any("lease" in line["message"] for line in stage.said("log", pid=late)))
    again = stage.client.enqueue("q", "slow", {})
    assert (again.status, again.result["by"]) == ("completed", other)


def test_work_that_was_done_but_not_acknowledged_is_done_again(stage: Stage) -> None:
    stage.worker(VISIBLE)
    stage.enqueue("twice", "work_and_die", then="last", seconds=0)
    stage.wait("end", "twice")
    stage.worker(VISIBLE)
    stage.finished("twice")
    assert len(stage.said("end", "twice")) == 2
