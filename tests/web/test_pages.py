"""Every page on every storage shows what is there, and every action does what it says and is written down."""

from __future__ import annotations

import re
from html import unescape
from typing import TYPE_CHECKING

import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.testclient import TestClient

import pgjq
from pgjq.outcome import Failed
from pgjq.web import create_app
from tests.web.conftest import BEARER, BIG, ERROR, TOKEN, Site, fill, run

if TYPE_CHECKING:
    from collections.abc import Iterable

STATES = {
    "done": "completed",
    "broken": "failed",
    "shaky": "failing",
    "busy": "processing",
    "waiting": "queued",
    "withdrawn": "cancelled",
}


def ids(text: str) -> list[str]:
    return re.findall(r'<td data-of="id" class="name"><a class="id" href="[^"]*">([^<]+)</a>', text)


def test_every_page_shows_what_is_there(site: Site) -> None:
    overview = site.get("/")
    assert "mail" in overview
    assert "no worker serves mail" in overview
    assert "pgjq worker" in overview
    assert "Newest jobs" in site.get("/queue?name=mail")
    assert "no such order 7" in site.get("/failures")
    assert "mail.py:12 in send" in site.get("/failures")
    assert "No worker runs" in site.get("/workers")
    assert "No one has acted yet" in site.get("/audit")


def test_a_queue_or_job_that_is_not_there_is_not_found(site: Site) -> None:
    assert "there is no queue" in site.get("/queue?name=none", 404)
    assert "there is no job" in site.get("/job?queue=mail&id=none", 404)
    site.get("/job?queue=mail", 400)
    site.get("/jobs?state=asleep", 400)
    site.get("/jobs?older=yesterday", 400)
    site.get("/nothing", 404)


def test_jobs_are_found_by_each_filter(site: Site) -> None:
    assert set(ids(site.get("/jobs"))) == STATES.keys()
    for job_id, state in STATES.items():
        assert ids(site.get(f"/jobs?queue=mail&state={state}")) == [job_id]
        assert ids(site.get(f"/jobs?state={state}")) == [job_id]
        assert ids(site.get(f"/jobs?id={job_id}")) == [job_id]
    assert ids(site.get("/jobs?key=customer-7")) == ["waiting"]
    assert set(ids(site.get("/jobs?worker=worker-1"))) == {"done", "broken", "busy"}
    assert set(ids(site.get("/jobs?error=NO+such+order"))) == {"broken", "shaky"}
    assert ids(site.get("/jobs?state=failed&error=mail.py:12")) == ["broken"]
    assert ids(site.get("/jobs?error=another")) == []
    assert ids(site.get("/jobs?older=1h")) == []
    assert set(ids(site.get("/jobs?newer=1h"))) == STATES.keys()
    assert ids(site.get("/jobs?queue=none")) == []


def test_a_job_shows_its_contents_unmangled(site: Site) -> None:
    text = site.get("/job?queue=mail&id=broken")
    assert f"&#34;order&#34;: {BIG}," in text
    assert "&#34;price&#34;: 1.1\n" in text
    assert "mail.py&#34;, line 12" in text
    assert "Retry" in text
    assert "&#34;n&#34;: 1" in site.get("/job?queue=mail&id=done")
    assert "Ask it to stop" in site.get("/job?queue=mail&id=busy")


def test_a_job_shows_its_runs_in_order(site: Site) -> None:
    site.client.retry("mail", "broken")
    run(site.storage, "mail", Failed(ERROR))
    line = re.findall(r'<li class="(\w+)"><b>([^<]+)</b>', site.get("/job?queue=mail&id=broken"))
    assert line == [("enqueued", "enqueued"), ("failed", "run 1 failed"), ("failed", "run 2 failed")]
    line = re.findall(r'<li class="(\w+)"><b>([^<]+)</b>', site.get("/job?queue=mail&id=shaky"))
    assert line == [("enqueued", "enqueued"), ("failed", "run 1 failed"), ("next", "runs again")]
    assert "run 1 completed" in site.get("/job?queue=mail&id=done")


def test_the_doctor_says_what_to_do(site: Site) -> None:
    text = site.get("/doctor")
    assert "no worker serves" in text
    assert "Start one" in text or "Start a worker" in text
    assert 'class="name">connection<' in text


def test_a_chart_leads_to_the_jobs_behind_it(site: Site) -> None:
    target = re.search(r'href="(jobs\?state=failed&amp;ended_after=60m)"', site.get("/"))
    assert target is not None
    assert ids(site.get("/" + unescape(target[1]))) == ["broken"]
    assert set(ids(site.get("/jobs?ended_after=10m"))) == {"done", "broken", "withdrawn"}
    assert ids(site.get("/jobs?ended_before=10m")) == []


def test_one_job_is_retried_cancelled_and_deleted(site: Site) -> None:
    assert "1 job queued again" in site.post("/act-job", action="retry", queue="mail", id="broken")
    assert "1 job cancelled" in site.post("/act-job", action="cancel", queue="mail", id="waiting")
    assert "1 job deleted" in site.post("/act-job", action="delete", queue="mail", id="done")
    states = {job_id: status.state for job_id, status in site.client.get_statuses("mail", STATES).items()}
    assert (states["broken"], states["waiting"], "done" in states) == ("queued", "cancelled", False)
    site.post("/act-job", 409, action="delete", queue="mail", id="busy")
    site.post("/act-job", 404, action="retry", queue="mail", id="none")
    site.post("/act-job", 400, action="explode", queue="mail", id="broken")
    actions = site.get("/audit")
    assert re.findall(r'data-of="action">(\w+)', actions) == ["delete", "delete", "cancel", "retry"]
    assert re.findall(r'class="n">(\d+)<', actions) == ["0", "1", "1", "1"]
    assert "token (testclient)" in actions


def test_many_jobs_are_shown_before_they_are_changed(site: Site) -> None:
    site.client.enqueue_many("bulk", [(f"b{n}", n) for n in range(30)])
    preview = site.get("/bulk?action=cancel&queue=bulk")
    assert "Cancel 30 jobs?" in preview
    assert len(ids(preview)) == 20
    site.client.enqueue("bulk", "later", 1)
    fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', preview.partition("act-many")[2]))
    assert "30 jobs cancelled" in site.post("/act-many", **fields)
    stats = site.client.get_queue_stats("bulk")
    assert (stats.cancelled, stats.queued) == (30, 1)
    assert site.client.get_status("bulk", "later").state == "queued"
    assert "more" in site.get("/audit")
    site.get("/bulk?action=delete", 400)
    site.post("/act-many", 400, action="delete", queue="bulk")


def test_a_queue_is_paused_and_resumed_where_queues_have_definitions(site: Site) -> None:
    text = site.get("/queue?name=mail")
    if not site.storage.capabilities.definitions:
        assert "Pause" not in text
        site.post("/act-queue", 409, action="pause", queue="mail")
        return
    assert "Paused" in site.post("/act-queue", action="pause", queue="mail")
    assert site.client.get_queue("mail").paused
    assert "mail is paused" in site.get("/")
    assert "Resumed" in site.post("/act-queue", action="resume", queue="mail")
    assert not site.client.get_queue("mail").paused
    site.post("/act-queue", 404, action="pause", queue="none")


def test_pages_follow_one_another(site: Site) -> None:
    site.client.enqueue_many("long", [(f"j{n:03}", n) for n in range(120)])
    seen: list[str] = []
    following: Iterable[str] = ["jobs?queue=long"]
    while following:
        text = site.get("/" + next(iter(following)).replace("&amp;", "&"))
        seen += ids(text)
        following = re.findall(r'<a rel="next" href="([^"]+)"', text)
    assert sorted(seen) == [f"j{n:03}" for n in range(120)]


@pytest.mark.parametrize("page", ["/", "/jobs", "/failures", "/workers", "/audit"])
def test_an_empty_storage_says_what_to_do(page: str) -> None:
    with TestClient(create_app(pgjq.MemoryStorage(), auth=TOKEN)) as browser:
        text = browser.get(page, headers=BEARER).text
    assert 'class="empty"' in text


def test_the_application_works_under_a_prefix() -> None:
    storage = pgjq.MemoryStorage()
    fill(storage)
    app = Starlette(routes=[Mount("/ops/jobs", create_app(storage, auth=TOKEN))])
    with TestClient(app) as browser:
        page = browser.get(f"/ops/jobs/?token={TOKEN}")
        assert page.url.path == "/ops/jobs/"
        assert "token" not in str(page.url)
        assert browser.get("/ops/jobs/static/style.css").status_code == 200
        job = browser.get("/ops/jobs/job?queue=mail&id=broken").text
        fields = dict(re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)"', job.partition("act-job")[2]))
        after = browser.post("/ops/jobs/act-job", data=fields | {"action": "retry"})
        assert after.url.path == "/ops/jobs/job"
        assert "queued again" in after.text
        assert browser.cookies.jar is not None
        assert {cookie.path for cookie in browser.cookies.jar} == {"/ops/jobs"}
