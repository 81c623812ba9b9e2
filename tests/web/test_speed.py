"""Pages read a bounded number of rows, whatever the tables hold: counted by the server, not by a clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from starlette.testclient import TestClient

import pgjq
from pgjq.storage.postgres import inspection
from pgjq.storage.postgres.session import AsyncSession
from pgjq.web import create_app
from tests.databases import new_database
from tests.web.conftest import BEARER, TOKEN, csrf_token, fill

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_postgresql.executors import NoopExecutor

# One process runs them all: what is filled with jobs is filled once.
pytestmark = pytest.mark.xdist_group("web-speed")
WAITING = 40_000
ENDED = 60_000
MOST = 30_000  # Rows that any page may read: a fraction of what is there.
PAGES = (
    *("/", "/queue?name=big", "/queue?name=rare", "/jobs", "/jobs?queue=big", "/jobs?queue=rare", "/workers", "/audit"),
    *(
        "/jobs?state=queued",
        "/jobs?queue=big&state=queued",
        "/jobs?state=processing",
        "/jobs?state=failed",
        "/failures",
    ),
    *("/jobs?id=w7", "/jobs?queue=big&id=w7", "/job?queue=big&id=w7", "/jobs?older=1h", "/jobs?newer=1s", "/live"),
)
FILL = """
insert into pgjq.body (seq, created_at, queue_id, id, payload)
select 1000000 + n, now() - interval '2 days' + n * interval '1 second', q.id, 'd' || n, '1'
from generate_series(1, {ended}) as n, pgjq.queue as q where q.name = 'big';
insert into pgjq.done
    (seq, finished_at, expires_at, started_at, delete_at, queue_id, lease, delete_after, rank, attempts, max_attempts,
    stalled, state, error)
select b.seq, b.created_at, now() + interval '1 day', b.created_at, null, b.queue_id, 1, 0, 0, 1, 3, 0,
    case when b.seq % 7 = 0 then 4 else 3 end, case when b.seq % 7 = 0 then '{{"type": "E", "message": "no"}}' end
from pgjq.body as b where b.seq > 1000000;
select setval('pgjq.job_seq', 2000000);
"""
READ = """
select coalesce(sum(seq_tup_read + coalesce(idx_tup_fetch, 0)), 0) from pg_stat_user_tables where schemaname = 'pgjq'
"""


@pytest.fixture(scope="module")
def full(server: str, template: NoopExecutor) -> Iterator[str]:
    """A database with a long queue, a long history, and a queue of three jobs that are old."""
    with new_database(server, template) as conninfo:
        storage = pgjq.PostgresStorage(conninfo)
        client = pgjq.Client(storage)
        client.enqueue_many("rare", [(f"r{n}", n) for n in range(3)])
        client.enqueue_many("big", [(f"w{n}", n) for n in range(WAITING)])
        storage.close()
        with psycopg.connect(conninfo, autocommit=True) as connection:
            for statement in FILL.format(ended=ENDED).split(";\n"):
                connection.execute(statement.encode())
            connection.execute("vacuum analyze")
        yield conninfo


def read_rows(connection: psycopg.Connection[Any]) -> int:
    connection.execute("select pg_stat_clear_snapshot()")
    return int(connection.execute(READ).fetchone()[0])


def test_every_page_reads_a_bounded_number_of_rows(full: str) -> None:
    read: dict[str, int] = {}
    with psycopg.connect(full, autocommit=True) as connection:
        for page in PAGES[:-1]:
            before = read_rows(connection)
            storage = pgjq.PostgresStorage(full)
            with TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser:
                assert browser.get(page).status_code == 200
            storage.close()  # Its sessions tell what they read when they end.
            while connection.execute(
                "select count(*) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
                " and backend_type = 'client backend'"
            ).fetchone() != (0,):
                pass
            read[page] = read_rows(connection) - before
    assert {page: rows for page, rows in read.items() if rows > MOST} == {}


def test_a_rare_queue_shows_its_old_jobs_at_once(full: str) -> None:
    storage = pgjq.PostgresStorage(full)
    with TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser:
        text = browser.get("/jobs?queue=rare").text
    storage.close()
    assert [f">r{n}<" in text for n in range(3)] == [True] * 3
    assert "Search further" not in text


def test_a_statement_that_takes_too_long_ends(full: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inspection, "TIMEOUT", 0.001)
    storage = pgjq.PostgresStorage(full)
    with (
        TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser,
        psycopg.connect(full) as other,
    ):
        other.execute("lock table pgjq.job in access exclusive mode")
        answer = browser.get("/jobs?state=processing")
    storage.close()
    assert answer.status_code == 503
    assert "statement timeout" in answer.text


def test_every_statement_of_pages_and_actions_has_a_time_limit(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[str, str]] = []
    fetch = AsyncSession.fetch

    async def noting(self: AsyncSession, name: str, params: dict[str, Any]) -> Any:
        cursor = await self.connection.execute("select current_setting('statement_timeout')")
        limits.append((name, (await cursor.fetchone())[0]))
        return await fetch(self, name, params)

    monkeypatch.setattr(AsyncSession, "fetch", noting)
    storage = pgjq.PostgresStorage(database)
    fill(storage)
    pgjq.Client(storage).create_schedule("nightly", "mail", cron="@daily")
    with TestClient(create_app(storage, auth=TOKEN), headers=BEARER) as browser:
        for page in (
            *("/", "/queue?name=mail", "/jobs?queue=mail", "/job?queue=mail&id=broken", "/job?queue=mail&id=busy"),
            *("/failures", "/workers", "/schedules", "/doctor", "/audit", "/bulk?action=retry&state=failed"),
        ):
            assert browser.get(page).status_code == 200, page
        code = csrf_token(browser.get("/job?queue=mail&id=broken").text)
        for path, forms in {
            "/act-job": [
                *({"action": "reschedule", "id": "waiting", "priority": "3"}, {"action": "cancel", "id": "waiting"}),
                *({"action": "release", "id": "busy"}, {"action": "retry", "id": "broken"}),
                {"action": "delete", "id": "done"},
            ],
            "/act-queue": [{"action": action} for action in ("pause", "resume", "redrive")],
            "/act-schedule": [{"action": action, "name": "nightly"} for action in ("pause", "resume", "run")],
            "/act-many": [{"action": action, "older": "2999-01-01"} for action in ("retry", "cancel", "delete")],
        }.items():
            for form in forms:
                answer = browser.post(path, data=form | {"queue": "mail", "csrf_token": code})
                assert answer.status_code == 200, (form, answer.text)
    storage.close()
    assert len({name for name, _ in limits}) > 20
    assert sorted({name for name, limit in limits if limit == "0"}) == []
