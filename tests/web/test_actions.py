"""What people do to running and waiting jobs, dead letters and schedules on the page, on every storage."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.errors import ValidationError
from pgjq.outcome import Completed, Failed
from pgjq.web.query import changes_of
from tests.web.conftest import ERROR, run

if TYPE_CHECKING:
    from tests.web.conftest import Site

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)


def audited(site: Site) -> list[tuple[str, str]]:
    """Return the actions of the page and how many jobs each changed, the latest first."""
    return re.findall(r'data-of="action">([^<]+).*?data-of="changed" class="n">([^<]+)<', site.get("/audit"))


def test_a_running_job_is_released(site: Site) -> None:
    assert ">Release</button>" in site.get("/job?queue=mail&id=busy")
    assert "1 job taken away" in site.post("/act-job", action="release", queue="mail", id="busy")
    assert site.client.get_status("mail", "busy").state == "queued"
    assert "run 1 lost its lease" in site.get("/job?queue=mail&id=busy")
    assert "is no longer running" in site.post("/act-job", 409, action="release", queue="mail", id="busy")
    assert audited(site) == [("release", "0"), ("release", "1")]


def test_a_waiting_job_gets_another_time_and_priority(site: Site) -> None:
    form = site.get("/job?queue=mail&id=waiting").partition('<section id="change">')[2]
    assert re.findall(r'name="(run_at|priority)"', form) == ["run_at", "priority"]
    assert '<section id="change">' not in site.get("/job?queue=mail&id=busy")
    answer = site.post("/act-job", action="reschedule", queue="mail", id="waiting", run_at="2h", priority="7")
    assert "1 job changed" in answer
    status = site.client.get_status("mail", "waiting")
    assert status.priority == 7
    assert timedelta(hours=1) < status.run_at - datetime.now(UTC) < timedelta(hours=3)
    site.post("/act-job", action="reschedule", queue="mail", id="waiting", run_at="now", priority="")
    run(site.storage, "mail", Completed(b"1"))
    assert site.client.get_status("mail", "waiting").state == "completed"
    site.post("/act-job", 409, action="reschedule", queue="mail", id="waiting", priority="1")
    for wrong in ({}, {"priority": "many"}, {"priority": "99999"}, {"run_at": "soon"}):
        site.post("/act-job", 400, action="reschedule", queue="mail", id="shaky", **wrong)


@pytest.mark.parametrize(
    ("given", "changes"),
    [
        ({}, {}),
        ({"run_at": " now "}, {"run_at": NOW}),
        ({"run_at": "15m"}, {"run_at": NOW + timedelta(minutes=15)}),
        ({"run_at": "2026-02-01T09:30"}, {"run_at": datetime(2026, 2, 1, 9, 30, tzinfo=UTC)}),
        ({"run_at": "2026-02-01T09:30+01:00"}, {"run_at": datetime(2026, 2, 1, 8, 30, tzinfo=UTC)}),
        ({"priority": "-3", "run_at": ""}, {"priority": -3}),
    ],
)
def test_the_fields_of_a_change(given: dict[str, str], changes: dict[str, object]) -> None:
    assert changes_of(given, NOW) == changes


def test_a_field_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ValidationError, match="90s, 15m, 2h, 7d or as a time, not 'tomorrow'"):
        changes_of({"run_at": "tomorrow"}, NOW)


def test_many_running_jobs_are_released(site: Site) -> None:
    site.client.enqueue_many("bulk", [(f"b{n}", n) for n in range(3)])
    for _ in range(2):
        run(site.storage, "bulk", None)
    assert "action=release" in site.get("/jobs?queue=bulk&state=processing")
    assert "action=release" not in site.get("/jobs?queue=bulk&state=queued")
    preview = site.get("/bulk?action=release&queue=bulk")
    assert "Release 2 jobs?" in preview
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', preview.partition("act-many")[2]))
    assert "2 jobs taken away" in site.post("/act-many", **fields)
    assert site.client.get_queue_stats("bulk").ready == 3


def test_dead_letters_are_redriven(site: Site) -> None:
    if not site.storage.capabilities.definitions:
        pytest.skip("this storage has no dead letters")
    site.client.create_queue("letters")
    site.client.create_queue("parcels", dead_letter="letters")
    site.client.enqueue("parcels", "lost", {"n": 1}, max_attempts=1)
    run(site.storage, "parcels", Failed(ERROR))
    (letter,) = site.client.find_jobs("letters")
    text = site.get(f"/job?queue=letters&id={letter.id}")
    assert 'href="job?queue=parcels&amp;id=lost"' in text
    assert 'dead letter in</dt><dd><a href="queue?name=letters"' in site.get("/job?queue=parcels&id=lost")
    assert "1 dead letter waits in letters" in site.get("/")
    assert "1 job sent back" in site.post("/act-queue", action="redrive", queue="letters")
    assert site.client.get_queue_stats("parcels").ready == 1


def test_a_schedule_is_run_paused_and_resumed(site: Site) -> None:
    if not site.storage.capabilities.definitions:
        site.get("/schedules", 409)
        return
    assert "pgjq schedules create" in site.get("/schedules")
    site.client.create_schedule("nightly", "reports", cron="0 3 * * *", timezone="Europe/Berlin")
    text = site.get("/schedules")
    assert "Europe/Berlin" in text
    assert ">Run now</button>" in text
    site.post("/act-schedule", action="run", name="nightly")
    (job,) = site.client.find_jobs("reports")
    assert job.state == "queued"
    site.post("/act-schedule", action="pause", name="nightly")
    assert site.client.get_schedule("nightly").paused
    assert ">Resume</button>" in site.get("/schedules")
    site.post("/act-schedule", action="resume", name="nightly")
    assert not site.client.get_schedule("nightly").paused
    site.post("/act-schedule", 400, action="run", name="none")
    assert [action for action, _ in audited(site)] == [
        *("resume schedule nightly", "pause schedule nightly", "run schedule nightly"),
    ]


def test_jobs_are_found_by_their_task(site: Site) -> None:
    queue = pgjq.Queue("tasks", storage=site.storage)

    @queue.task
    def receipt(order: int) -> int:
        return order

    receipt.using(id="r7").enqueue(7)
    site.client.enqueue("tasks", "plain", None)
    assert re.findall(r'class="id" href="[^"]+">([^<]+)<', site.get("/jobs?task=receipt")) == ["r7"]
    assert 'href="jobs?queue=tasks&amp;task=receipt"' in site.get("/job?queue=tasks&id=r7")
