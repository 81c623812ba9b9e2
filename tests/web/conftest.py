"""The web page on every storage, with jobs in every state."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from typing import TYPE_CHECKING, Any

import pytest
from starlette.testclient import TestClient

import pgjq
from pgjq.blocking import drive
from pgjq.outcome import Completed, Failed, Failing
from pgjq.storage.base import Settlement
from pgjq.web import create_app

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TOKEN = "correct horse battery staple"
BEARER = {"authorization": f"Bearer {TOKEN}"}
BIG = 9_223_372_036_854_775_807
ERROR = pgjq.JobError(
    "ValueError", "no such order 7", 'Traceback\n  File "/srv/shop/mail.py", line 12, in send\nValueError'
)


@dataclass(frozen=True)
class Site:
    """A page that a person with the token looks at."""

    storage: Any
    browser: TestClient

    @property
    def client(self) -> pgjq.Client:
        return pgjq.Client(self.storage)

    def get(self, path: str, status: int = 200) -> str:
        answer = self.browser.get(path, headers=BEARER)
        assert answer.status_code == status, answer.text
        return answer.text

    def post(self, path: str, status: int = 200, **form: str) -> str:
        """Post a form with the code that the page gave out."""
        form.setdefault("csrf_token", csrf_token(self.get("/job?queue=mail&id=broken")))
        answer = self.browser.post(path, data=form, headers=BEARER)
        assert answer.status_code == status, answer.text
        return answer.text


def csrf_token(text: str) -> str:
    found = re.search(r'name="csrf_token" value="([^"]+)"', text)
    assert found is not None, "the page has no form"
    return unescape(found[1])


def run(storage: Any, queue: str, outcome: Any) -> None:
    """Run the next job of a queue."""
    ops = storage.operations("sync")
    (job,) = drive(ops.claim([queue], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
    if outcome is not None:
        drive(ops.settle([Settlement(job.lease, outcome)]))


def fill(storage: Any) -> None:
    """Add a queue with a job in every state."""
    client = pgjq.Client(storage)
    ends = {"done": Completed(b'{"n": 1}'), "broken": Failed(ERROR), "shaky": Failing(ERROR, 600.0), "busy": None}
    for job_id, outcome in ends.items():
        client.enqueue("mail", job_id, {"order": BIG, "price": 1.10})
        run(storage, "mail", outcome)
    client.enqueue("mail", "waiting", {"order": 8}, singleton_key="customer-7")
    client.enqueue("mail", "withdrawn", {"order": 9})
    client.cancel("mail", "withdrawn")


@pytest.fixture(params=["memory", "file", "redis", "postgres"])
def storage(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "redis":
        yield request.getfixturevalue("redis_storage")
        return
    made: Any = {
        "memory": pgjq.MemoryStorage,
        "file": lambda: pgjq.FileStorage(_directory(request)),
        "postgres": lambda: pgjq.PostgresStorage(request.getfixturevalue("database")),
    }[request.param]()
    yield made
    made.close()


def _directory(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue("tmp_path") / "jobs"


@pytest.fixture
def site(storage: Any) -> Iterator[Site]:
    fill(storage)
    with TestClient(create_app(storage, auth=TOKEN)) as browser:
        yield Site(storage, browser)
