"""`pgjq worker`, `pgjq reaper` and `pgjq bench`, as processes of their own where it matters."""

from __future__ import annotations

import signal
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import pgjq
from tests.cli.run_command import answer, run, started

SHOP = """
import os, threading
import pgjq

storage = pgjq.PostgresStorage(os.environ["PGJQ_URL"])
mail = pgjq.Queue("mail", storage=storage, concurrency=2, visibility_timeout=1)
orders = pgjq.AsyncQueue("orders", storage=storage, visibility_timeout=1)


@mail.execute
def send(job):
    if job.payload == "fail":
        raise pgjq.Discard("told to")
    if job.payload == "hang":
        threading.Event().wait()
    return [job.payload, os.getpid()]


@orders.execute
async def ship(job):
    return job.payload
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


def hang(database: str) -> None:
    """Enqueue a job that never ends, and return when it runs."""
    with pgjq.Client(pgjq.PostgresStorage(database)) as client, client.subscribe("mail") as events:
        client.enqueue("mail", "a", "hang")
        assert any(event.name == "processing" for event in events)


def family(pid: int) -> list[int]:
    """List a process and all that it has started."""
    children = [
        int(child) for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()
    ]
    return [pid, *(member for child in children for member in family(child))]


def test_no_process_title_and_no_session_name_has_the_password(database: str, shop: Path) -> None:
    url = make_conninfo(database, password="zecret")
    with started("worker", "shop", "--processes", "2", url=url, directory=shop) as worker:
        with pgjq.Client(pgjq.PostgresStorage(url)) as client:
            assert client.enqueue_and_wait("mail", "a", 1, timeout=60)[0] == 1
        titles = [Path(f"/proc/{pid}/{name}").read_text() for pid in family(worker.pid) for name in ("cmdline", "comm")]
        with psycopg.connect(database) as connection:
            sessions = connection.execute("select application_name, query from pg_stat_activity").fetchall()
        assert len(titles) >= 6
        assert [text for text in (*titles, *map(str, sessions)) if "zecret" in text] == []
        assert worker.end() == 0


def test_a_worker_runs_the_jobs_of_its_queues_and_ends_in_order(database: str, shop: Path) -> None:
    with started("worker", "shop", "--processes", "2", url=database, directory=shop) as worker:
        line = worker.wait_for(" serves ")
        assert line["message"].endswith(" serves mail, orders on PostgresStorage: 2 processes with 3 jobs each")
        assert line["level"] == "info"
        value, pid = answer("enqueue", "mail", '"hi"', "--wait", "60", url=database)["result"]
        assert value == "hi"
        assert pid != worker.pid
        assert answer("enqueue", "orders", "7", "--wait", "60", url=database)["result"] == 7
        assert run("enqueue", "mail", '"fail"', "--id", "bad", "--wait", "60", url=database).exit_code == 1
        discarded = worker.wait_for("job discarded")
        assert (discarded["queue"], discarded["job_id"], discarded["level"]) == ("mail", "bad", "info")
        assert discarded["error"] == "pgjq.outcome.Discard: told to"
        assert worker.end() == 0


def test_jobs_of_a_killed_worker_are_taken_back_by_a_reaper(database: str, shop: Path) -> None:
    with started("worker", "shop:mail", url=database, directory=shop) as worker:
        worker.wait_for("2 jobs at a time")
        hang(database)
        assert worker.end(signal.SIGKILL) == -signal.SIGKILL
    with started("reaper", "--leader-election", url=database, directory=shop) as reaper:
        assert reaper.wait_for("takes stalled jobs back")["message"].endswith("as a candidate for leader")
        stalled = reaper.wait_for("job stalled")
        assert (stalled["queue"], stalled["job_id"], stalled["action"]) == ("mail", "a", "recovered")
        assert reaper.end(signal.SIGINT) == 0
    status = answer("status", "mail", "a", url=database)
    assert (status["state"], status["stalled"]) == ("failing", 1)


def test_a_worker_gives_back_what_does_not_end_in_its_grace(database: str, shop: Path) -> None:
    with started("worker", "shop:mail", "--grace", "0", url=database, directory=shop) as worker:
        worker.wait_for(" serves ")
        hang(database)
        assert worker.end() == 0
    status = answer("status", "mail", "a", url=database)
    assert (status["state"], status["attempts"]) == ("queued", 0)


def test_bench_tells_its_figures_and_leaves_nothing_behind(database: str) -> None:
    figures = answer("bench", "--jobs", "100", url=database)
    assert (figures["storage"], figures["jobs"]) == ("PostgresStorage", 100)
    assert min(figures[name] for name in figures if name.endswith(("_rate", "_ms"))) > 0
    assert figures["pickup_p50_ms"] <= figures["pickup_p95_ms"]
    assert answer("queues", "list", url=database) == []
    assert answer("jobs", "find", url=database) == []


def test_a_bench_that_is_interrupted_leaves_nothing_behind(database: str, postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    with started("bench", "--jobs", "1000000", url=database, directory=Path()) as bench:
        while not client.find_jobs(limit=1):
            pass
        assert bench.end(signal.SIGINT) == 130
    assert client.get_queues() == []


def test_bench_leaves_nothing_behind_on_a_storage_without_definitions(
    redis_url: str, redis_storage: pgjq.RedisStorage
) -> None:
    assert redis_storage.capabilities.definitions is False
    lines = run("bench", "--jobs", "100", url=redis_url).stdout.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        "what",
        "enqueue",
        "enqueue_many",
        "drain",
        "pickup",
        "round trip",
    ]
    assert answer("jobs", "find", url=redis_url) == []
