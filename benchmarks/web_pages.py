"""How long each page of the web page takes, against the 200 ms that are promised.

A queue with the backlog of the scale (a million), ten times as many ended jobs, a thousand other queues of one job
each, and ten thousand workers that were seen once. A page is asked for by a client in this process; its rendering
counts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import migrated_database, run_statement
from benchmarks.measure import Finding, Scale, against_number

if TYPE_CHECKING:
    from starlette.testclient import TestClient

    from pgjq.embedded import EmbeddedServer

PROMISED_MS = 200.0
HISTORY = 10
TOKEN = "benchmark"  # noqa: S105  (of a database that lives for minutes)
PAGES = {
    "overview": "/",
    "queue, a million jobs": "/queue?name=q0",
    "queue, one job": "/queue?name=q500",
    "jobs": "/jobs",
    "jobs, queued": "/jobs?state=queued",
    "jobs, queued in a queue": "/jobs?queue=q0&state=queued",
    "jobs, failed": "/jobs?state=failed",
    "jobs, by error": "/jobs?error=another",
    "jobs, by id": "/jobs?id=w7",
    "jobs, by worker": "/jobs?worker=nobody",
    "jobs, older than a day": "/jobs?older=1d",
    "jobs of a rare queue": "/jobs?queue=q500",
    "job": "/job?queue=q0&id=w7",
    "failures": "/failures",
    "jobs, ended within ten minutes": "/jobs?ended_after=10m",
    "workers": "/workers",
    "schedules": "/schedules",
    "doctor": "/doctor",
    "actions": "/audit",
}


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Time each page, after one that is not counted."""
    from starlette.testclient import TestClient

    from pgjq.web import create_app

    with migrated_database(server, "web_pages") as conninfo:
        _fill(conninfo, scale)
        storage = pgjq.PostgresStorage(conninfo)
        with TestClient(create_app(storage, auth=TOKEN), headers={"authorization": f"Bearer {TOKEN}"}) as browser:
            findings = [
                against_number(_times(browser, path, scale.rounds), PROMISED_MS, what=name, unit="ms", side="at most")
                for name, path in PAGES.items()
            ]
        storage.close()
    return findings


def _times(browser: TestClient, path: str, rounds: int) -> list[float]:
    return [_milliseconds(browser, path) for _ in range(rounds + 1)][1:]


def _milliseconds(browser: TestClient, path: str) -> float:
    start = time.perf_counter()
    answer = browser.get(path)
    assert answer.status_code == 200, (path, answer.text)
    return (time.perf_counter() - start) * 1000


def _fill(conninfo: str, scale: Scale) -> None:
    storage = pgjq.PostgresStorage(conninfo)
    client = pgjq.Client(storage)
    for number in range(1001):
        client.enqueue(f"q{number}", "only", number)
    for start in range(0, scale.backlog, 100_000):
        client.enqueue_many("q0", [(f"w{n}", n) for n in range(start, min(start + 100_000, scale.backlog))])
    storage.close()
    run_statement(conninfo, "web_bodies", {"jobs": scale.backlog * HISTORY})
    for name in ("web_ended", "web_workers", "vacuum"):
        run_statement(conninfo, name)
