"""Metrics compared with what happened, through the parser of Prometheus."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from prometheus_client import CollectorRegistry
from psycopg.conninfo import make_conninfo

import pgjq
from pgjq.blocking import drive
from pgjq.lease import LeasePolicy
from pgjq.outcome import Completed
from pgjq.prometheus import Collector, WorkerCollector, instrument
from pgjq.storage.base import Settled
from pgjq.testing.clock import PostgresClock
from pgjq.worker import measurements
from pgjq.worker.measurements import Measurements
from tests.observability.scraping import labelled, read, scrape

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(params=["postgres", "redis", "file", "memory"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Each storage, empty."""
    match request.param:
        case "postgres":
            made: Any = pgjq.PostgresStorage(request.getfixturevalue("database"))
        case "redis":
            made = request.getfixturevalue("redis_storage")
        case "file":
            made = pgjq.FileStorage(tmp_path)
        case _:
            made = pgjq.MemoryStorage()
    yield made
    made.close()


def work(storage: Any) -> WorkerCollector:
    """Run three receipts, one of which fails; leave two jobs queued and one cancelled; return the worker's metrics."""
    mail = pgjq.Queue("mail", storage=storage, concurrency=2, block_timeout=0.2)

    @mail.task
    def receipt(order: int) -> int:
        if order == 3:
            raise pgjq.Discard("no such order")
        return order

    done = threading.Semaphore(0)
    mail.on("completed", lambda _: done.release())
    mail.on("failed", lambda _: done.release())
    collector = instrument(mail, registry=CollectorRegistry())
    for order in (1, 2, 3):
        receipt.enqueue(order)
    with mail:
        for _ in range(3):
            assert done.acquire(timeout=30)
    later = pgjq.Queue("later", storage=storage)
    later.enqueue("a", 1)
    later.enqueue("b", 1, delay=1000)
    later.enqueue("c", 1)
    later.cancel("c")
    return collector


def test_the_exporter_tells_what_happened(storage: Any) -> None:
    work(storage)
    found = scrape(Collector(storage))
    assert read(found, "pgjq_up") == 1
    assert read(found, "pgjq_jobs", queue="mail", state="completed") == 2
    assert read(found, "pgjq_jobs", queue="mail", state="failed") == 1
    assert read(found, "pgjq_jobs", queue="later", state="queued") == 2
    assert read(found, "pgjq_jobs", queue="later", state="cancelled") == 1
    assert read(found, "pgjq_in_flight", queue="mail") == 0
    assert read(found, "pgjq_workers", queue="mail") == 0
    assert read(found, "pgjq_oldest_ready_seconds", queue="mail") == 0
    assert read(found, "pgjq_oldest_ready_seconds", queue="later") > 0
    assert read(found, "pgjq_jobs_finished_total", queue="mail", task="receipt", outcome="completed") == 2
    assert read(found, "pgjq_jobs_finished_total", queue="mail", task="receipt", outcome="failed") == 1
    assert read(found, "pgjq_jobs_finished_total", queue="later", task="", outcome="cancelled") == 1


def test_a_worker_tells_what_it_ran(storage: Any) -> None:
    found = scrape(work(storage))
    assert read(found, "pgjq_jobs_finished_total", queue="mail", task="receipt", outcome="completed") == 2
    assert read(found, "pgjq_jobs_finished_total", queue="mail", task="receipt", outcome="failed") == 1
    for name in ("pgjq_wait_seconds", "pgjq_run_seconds"):
        assert read(found, f"{name}_count", queue="mail", task="receipt") == 3
        assert read(found, f"{name}_bucket", queue="mail", task="receipt", le="+Inf") == 3
        assert 0 < read(found, f"{name}_sum", queue="mail", task="receipt") < 60
    assert read(found, "pgjq_leases_lost_total") == 0
    assert read(found, "pgjq_in_flight", queue="mail") == 0


def test_a_stall_is_counted_and_stays_counted(storage: Any) -> None:
    ops, client, collector = storage.operations("sync"), pgjq.Client(storage), Collector(storage, max_age=0)
    client.enqueue("mail", "a", 1)
    drive(ops.claim(["mail"], worker="w", limit=1, policy=pgjq.LeasePolicy(lease=0.01, heartbeat=None)))
    assert read(scrape(collector), "pgjq_stalled_total", queue="mail") == 0
    while not drive(ops.reap()):
        time.sleep(0.01)
    assert read(scrape(collector), "pgjq_stalled_total", queue="mail") == 1
    client.cancel("mail", "a")
    client.delete_job("mail", "a")
    assert read(scrape(collector), "pgjq_stalled_total", queue="mail") == 1


def test_a_running_worker_and_its_leader_are_seen(database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    queue = pgjq.Queue("slow", storage=storage)
    running, release = threading.Event(), threading.Event()

    @queue.execute
    def handle(_job: pgjq.Job[int]) -> None:
        running.set()
        release.wait(60)

    own = instrument(queue, registry=CollectorRegistry())
    queue.enqueue("a", 1)
    with queue:
        assert running.wait(30)
        found = scrape(Collector(storage))
        while not read(found, "pgjq_leader", role="maintenance"):
            time.sleep(0.02)  # The election is a step of another thread.
            found = scrape(Collector(storage))
        assert read(found, "pgjq_workers", queue="slow") == 1
        assert read(found, "pgjq_in_flight", queue="slow") == 1
        assert read(scrape(own), "pgjq_in_flight", queue="slow") == 1
        assert read(found, "pgjq_leader", role="reaper") == 0
        release.set()
    storage.close()


def test_totals_survive_the_records_and_count_once(database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    clock = PostgresClock(database)
    work(storage)
    counted = ("pgjq_jobs_finished_total", {"queue": "mail", "task": "receipt", "outcome": "completed"})
    exporter = Collector(storage, max_age=0)
    assert read(scrape(exporter), counted[0], **counted[1]) == 2
    clock.advance(seconds=60)
    assert read(scrape(exporter), counted[0], **counted[1]) == 2
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("delete from pgjq.done")
    found = scrape(exporter)
    assert read(found, counted[0], **counted[1]) == 2
    assert read(found, "pgjq_jobs", queue="mail", state="completed") == 0
    storage.close()


def test_stalls_snapshots_and_late_schedules(database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    clock = PostgresClock(database)
    client = pgjq.Client(storage)
    queue = pgjq.Queue("stall", storage=storage)
    queue.enqueue("a", 1)
    client.create_schedule("nightly", "stall", every=60)
    ops = storage.operations("sync")
    policy = LeasePolicy.visibility(5)
    assert len(drive(ops.claim(["stall"], worker="w", limit=1, policy=policy, claim_id=1))) == 1
    clock.advance(seconds=600)
    assert len(drive(ops.reap(stale_age=policy.stale_age, limit=10))) == 1
    with psycopg.connect(database) as other:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select 1 from pgjq.queue")
        found = scrape(Collector(storage))
    assert read(found, "pgjq_stalled_total", queue="stall") == 1
    assert read(found, "pgjq_oldest_snapshot_seconds") > 0
    storage.close()


def test_a_reading_is_kept_for_a_while_and_names_are_bounded(database: str) -> None:
    storage = pgjq.PostgresStorage(database)
    client = pgjq.Client(storage)
    for number in range(6):
        client.enqueue(f"q{number}", "a", {"task": f"t{number}"})
        client.cancel(f"q{number}", "a")
    exporter = Collector(storage, max_queues=2, max_tasks=3, max_age=1000)
    found = scrape(exporter)
    assert labelled(found, "pgjq_jobs", "queue") == {"q0", "q1", "other"}
    assert read(found, "pgjq_jobs", queue="other", state="cancelled") == 4
    assert len(labelled(found, "pgjq_jobs_finished_total", "task")) == 4
    assert sum(value for (name, _), value in found.items() if name == "pgjq_jobs_finished_total") == 6
    client.enqueue("q0", "b", 1)
    assert read(scrape(exporter), "pgjq_jobs", queue="q0", state="queued") == 0
    assert read(scrape(Collector(storage)), "pgjq_jobs", queue="q0", state="queued") == 1
    storage.close()


def test_measured_tasks_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measurements, "MOST_SERIES", 3)
    storage = pgjq.MemoryStorage()
    queue = pgjq.Queue("many", storage=storage)
    queue.enqueue_many([(f"{n}", {"task": f"t{n}"}) for n in range(8)])
    claimed = drive(storage.operations("sync").claim(["many"], worker="w", limit=8, policy=LeasePolicy(), claim_id=1))
    measured = Measurements()

    class Ran:
        began, took = 0.0, 0.5

        def __init__(self, job: Any) -> None:
            self.claimed = job

    measured.settled([(Ran(job), Completed(b"1"), Settled(job.lease, "completed")) for job in claimed])  # type: ignore[misc]
    found = scrape(WorkerCollector(measured))
    assert labelled(found, "pgjq_run_seconds_count", "task") == {"t0", "t1", "t2", "other"}
    assert read(found, "pgjq_run_seconds_count", queue="other", task="other") == 5


def test_a_monitor_may_export(own_database: str) -> None:
    pgjq.migrate(own_database, roles=True)
    name = "exporter_" + own_database[-8:].replace("=", "").replace(" ", "").replace("-", "")
    work(owner := pgjq.PostgresStorage(own_database))
    with psycopg.connect(own_database, autocommit=True) as connection:
        connection.execute(f"create role {name} login in role pgjq_monitor".encode())
        try:
            storage = pgjq.PostgresStorage(make_conninfo(own_database, user=name))
            assert read(scrape(Collector(storage)), "pgjq_jobs", queue="mail", state="completed") == 2
            storage.close()
        finally:
            connection.execute(f"drop role {name}".encode())
    owner.close()


def test_a_storage_that_cannot_be_read_is_down() -> None:
    storage = pgjq.PostgresStorage("host=127.0.0.1 port=1 connect_timeout=1")
    found = scrape(Collector(storage))
    assert read(found, "pgjq_up") == 0
    assert not labelled(found, "pgjq_jobs", "queue")
    storage.close()
