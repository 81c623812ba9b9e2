"""A worker inside a web application, a fan-out of several tasks, and a middleware that reports errors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    import pgjq
    from tests.examples.conftest import Processes


def test_an_application_runs_its_own_worker(processes: Processes, client: pgjq.Client) -> None:
    mailer = processes.serve("mailer:app")
    answers = [mailer.post("/welcome", params={"to": "ann@example.org"}) for _ in range(2)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (202, {"job": "welcome-ann@example.org"})
    ] * 2
    assert client.wait("mail", "welcome-ann@example.org", timeout=60) == "welcomed ann@example.org"
    shown = mailer.get("/jobs/welcome-ann@example.org").json()
    assert shown == {"state": "completed", "result": "welcomed ann@example.org"}
    assert mailer.get("/jobs/other").status_code == 404
    assert client.get_queue_stats("mail").completed == 1


def test_a_fan_out_of_several_tasks_ends(processes: Processes, client: pgjq.Client) -> None:
    processes.start("pgjq", "worker", "fan_out")
    said, _ = processes.start("python", "fan_out.py", "2500").communicate(timeout=120)
    assert "2500/2500" in said
    assert "0 failed" in said
    assert client.get_queue_stats("fan-out").completed == 2500
    assert {job.task for job in client.find_jobs("fan-out", limit=2500)} == {"resize", "index", "total"}


def test_an_exception_is_reported_with_the_request_that_enqueued_the_job(
    processes: Processes, client: pgjq.Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPORTS", str(tmp_path / "reports.jsonl"))
    processes.start("pgjq", "worker", "error_reports")
    said, _ = processes.start("python", "error_reports.py").communicate(timeout=120)
    assert said.splitlines()[0] == "25"
    (failed,) = client.find_jobs("billing", state="failed")
    (report,) = [json.loads(line) for line in (tmp_path / "reports.jsonl").read_text().splitlines()]
    assert (report["task"], report["job"], report["attempt"]) == ("share", failed.id, 1)
    assert "ZeroDivisionError" in report["trace"]
    assert len(report["request"]) == 32
