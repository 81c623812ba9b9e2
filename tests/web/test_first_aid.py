"""A newcomer breaks a fleet in four ways and finds each cause on the page, in `pgjq top` and by `pgjq doctor`.

Each place has to name what is wrong and what to do, on the first thing a person sees there.
"""

from __future__ import annotations

import asyncio
from io import StringIO
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from rich.console import Console
from starlette.testclient import TestClient

import pgjq
from pgjq.blocking import drive
from pgjq.cli.top.drawing import draw
from pgjq.cli.top.model import Screen, show
from pgjq.cli.top.reading import read
from pgjq.doctor import examine
from pgjq.generic_inspection import inspection_of
from pgjq.outcome import Failed
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration
from pgjq.web import create_app
from tests.web.conftest import BEARER, ERROR, TOKEN

if TYPE_CHECKING:
    from collections.abc import Iterator

LONG_AGO = "update pgjq.registration set last_seen = last_seen - interval '1 hour'"
OVERDUE = "update pgjq.job set locked_until = now() - interval '1 hour' where state = 1"


@pytest.fixture
def storage(database: str) -> Iterator[pgjq.PostgresStorage]:
    storage = pgjq.PostgresStorage(database)
    yield storage
    storage.close()


def serve(storage: Any, *queues: str) -> None:
    drive(storage.operations("sync").worker_seen(Registration("one", "worker-1", queues, 10.0)))


def fail(storage: Any, queue: str, worker: str = "worker-1") -> None:
    ops = storage.operations("sync")
    (job,) = drive(ops.claim([queue], worker=worker, limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Failed(ERROR))]))


def page_of(storage: Any, path: str) -> str:
    with TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser:
        return browser.get(path).text


def top_of(storage: Any) -> str:
    """Return the first screen of `pgjq top`, 80 x 24."""

    async def reading() -> Any:
        try:
            return await read(storage, inspection_of(storage), Screen())
        finally:
            await storage.operations("async").close()

    screen = show(Screen(), asyncio.run(reading()))
    console = Console(width=80, height=24, file=StringIO())
    with console.capture() as captured:
        console.print(draw(screen, "PostgresStorage", 80, 24))
    return " ".join(captured.get().split())  # A finding may be wrapped.


def doctor_of(storage: Any) -> str:
    async def examining() -> Any:
        try:
            return await examine(storage)
        finally:
            await storage.operations("async").close()

    return "\n".join(f"{f.message} -> {f.advice}" for f in asyncio.run(examining()) if f.level != "ok")


def test_a_bad_handler(storage: pgjq.PostgresStorage) -> None:
    serve(storage, "mail")
    pgjq.Client(storage).enqueue("mail", "7", {})
    fail(storage, "mail")
    for text in (page_of(storage, "/"), page_of(storage, "/failures"), top_of(storage), doctor_of(storage)):
        assert "ValueError" in text
        assert "mail.py:12 in send" in text
    assert "Mend the handler" in page_of(storage, "/")
    job = page_of(storage, "/job?queue=mail&id=7")
    assert "run 1 failed" in job
    assert "Retry" in job


def test_a_killed_process(storage: pgjq.PostgresStorage, database: str) -> None:
    serve(storage, "mail")
    pgjq.Client(storage).enqueue("mail", "7", {})
    drive(storage.operations("sync").claim(["mail"], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
    with psycopg.connect(database) as connection:
        connection.execute(LONG_AGO)
        connection.execute(OVERDUE)
    for text in (page_of(storage, "/"), top_of(storage), doctor_of(storage)):
        assert "went silent" in text
        assert "7 of mail" in text
        assert "pgjq reaper" in text


def test_a_job_whose_worker_was_killed(storage: pgjq.PostgresStorage, database: str) -> None:
    serve(storage, "mail")
    pgjq.Client(storage).enqueue("mail", "7", {}, max_attempts=1)
    drive(storage.operations("sync").claim(["mail"], worker="worker-1", limit=1, policy=pgjq.LeasePolicy()))
    with psycopg.connect(database) as connection:
        connection.execute(OVERDUE)
    drive(storage.operations("sync").reap())
    for text in (page_of(storage, "/"), top_of(storage), doctor_of(storage)):
        assert "its worker went silent (worker worker-1)" in text
        assert "out of memory?" in text
        assert "Mend the handler" not in text


def test_a_stuck_key(storage: pgjq.PostgresStorage) -> None:
    serve(storage, "orders")
    client = pgjq.Client(storage)
    client.create_queue("orders", policy="key_strict_fifo")
    for job_id in ("1", "2"):
        client.enqueue("orders", job_id, {}, singleton_key="customer-7")
    fail(storage, "orders")
    for text in (page_of(storage, "/"), top_of(storage), doctor_of(storage)):
        assert "key customer-7 of" in text
        assert "blocked by job 1, which is failed" in text
        assert "delete" in text


def test_a_missing_worker(storage: pgjq.PostgresStorage) -> None:
    serve(storage, "other")
    client = pgjq.Client(storage)
    client.create_queue("letters")
    client.create_queue("mail", dead_letter="letters")
    client.enqueue("letters", "6", {})  # Lesser findings of the same check come later.
    client.enqueue("mail", "7", {})
    for text in (page_of(storage, "/"), top_of(storage), doctor_of(storage)):
        assert "no worker serves" in text
        assert "pgjq worker MODULE:QUEUE" in text
