"""Definitions and many jobs at once, as the client has them; upkeep, as a worker does it."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import psycopg
import pytest

from pgjq import (
    AsyncClient,
    Client,
    JobError,
    LeasePolicy,
    MemoryStorage,
    PolicyError,
    PostgresStorage,
    Queue,
    QueueNotFoundError,
    ValidationError,
)
from pgjq.blocking import drive
from pgjq.outcome import Failed
from pgjq.storage.base import Settlement
from pgjq.worker.maintenance import Maintenance
from tests.worker.conftest import unexpected

POLICY = LeasePolicy()


@pytest.fixture
def client(postgres: PostgresStorage) -> Client:
    return Client(postgres)


def fail_all(postgres: PostgresStorage, queue: str = "q") -> None:
    ops = postgres.operations("sync")
    jobs = drive(ops.claim([queue], worker="w", limit=5000, policy=POLICY))
    drive(ops.settle([Settlement(job.lease, Failed(JobError("E", "boom"))) for job in jobs]))


def test_creating_answers_with_the_values_in_force(client: Client) -> None:
    info = client.create_queue(
        "q", policy="short", partition=True, retry_limit=4, heartbeat_seconds=timedelta(minutes=1)
    )
    assert (info.name, info.policy, info.partition) == ("q", "short", True)
    assert (info.retry_limit, info.heartbeat_seconds, info.expire_in_seconds) == (4, 60, 900)
    assert client.update_queue("q", retry_limit=None, retry_backoff=True).retry_limit == 2
    assert client.get_queue("q").retry_backoff
    assert [queue.name for queue in client.get_queues()] == ["q"]


@pytest.mark.parametrize("name", ["", "q" * 129, "a\nb", "\0", 7])
def test_a_name_that_is_none_changes_nothing(client: Client, name: Any) -> None:
    for call in (
        client.create_queue,
        client.update_queue,
        client.delete_queue,
        client.get_queue,
        client.pause_queue,
        client.resume_queue,
        client.get_blocked_keys,
        client.redrive,
    ):
        with pytest.raises(ValidationError, match="name"):
            call(name)
    assert client.get_queues() == []


def test_a_queue_that_is_not_there_is_not_found(client: Client) -> None:
    for call in (client.get_queue, client.delete_queue, client.update_queue, client.pause_queue, client.redrive):
        with pytest.raises(QueueNotFoundError, match="'nobody'"):
            call("nobody")


def test_a_job_cannot_name_its_own_queue_for_dead_letters(client: Client) -> None:
    with pytest.raises(ValidationError, match="its own dead letter"):
        client.enqueue("q", "a", 1, dead_letter="q")
    assert client.get_queues() == []


def test_a_bad_definition_changes_nothing(client: Client) -> None:
    client.create_queue("q", retry_limit=1)
    with pytest.raises(ValidationError):
        client.update_queue("q", retry_limit=3, heartbeat_seconds=9)
    with pytest.raises(PolicyError):
        client.create_queue("q", policy="exclusive", retry_limit=3)
    assert client.get_queue("q").retry_limit == 1


def test_jobs_are_retried_by_what_they_have_in_common(client: Client, postgres: PostgresStorage) -> None:
    client.enqueue_many("q", [(f"{n}", n) for n in range(25)])
    client.enqueue("other", "a", 1)
    fail_all(postgres)
    told: list[int] = []
    assert client.retry_many("q", progress=told.append, batch=10) == 25
    assert told == [10, 20, 25]
    assert client.get_queue_stats("q").queued == 25
    assert client.retry_many("q") == 0


def test_jobs_are_cancelled_and_deleted_by_their_age(client: Client) -> None:
    client.enqueue_many("q", [(f"{n}", n) for n in range(5)])
    past, future = datetime.now(UTC) - timedelta(hours=1), datetime.now(UTC) + timedelta(hours=1)
    assert client.cancel_many("q", created_before=past) == 0
    assert client.cancel_many("q", created_before=future, state="queued", batch=2) == 5
    assert client.get_queue_stats("q").cancelled == 5
    assert client.delete_many(state="cancelled", created_before=past) == 0
    assert client.delete_many(state="cancelled", created_after=past) == 5
    assert client.get_queue_stats("q").total == 0


def test_all_jobs_of_all_queues_are_not_meant_by_saying_nothing(client: Client) -> None:
    client.enqueue("q", "a", 1)
    for call in (client.delete_many, client.cancel_many):
        with pytest.raises(ValidationError, match="say which jobs"):
            call()
    assert client.get_queue_stats("q").queued == 1


def test_those_that_have_no_place_stay_failed(client: Client, postgres: PostgresStorage) -> None:
    client.create_queue("q", policy="exclusive")
    for n in range(3):
        client.enqueue("q", f"{n}", n)
        fail_all(postgres)
    assert client.retry_many("q") == 1
    assert client.get_queue_stats("q").failed == 2


def test_a_coroutine_may_hear_of_the_progress(database: str) -> None:
    told: list[int] = []

    async def tell(done: int) -> None:
        await asyncio.sleep(0)
        told.append(done)

    async def main() -> int:
        async with AsyncClient(PostgresStorage(database)) as client:
            await client.create_queue("q", policy="short")
            await client.enqueue("q", "a", 1)
            return await client.cancel_many("q", progress=tell)

    assert asyncio.run(main()) == 1
    assert told == [1]


def test_memory_takes_many_jobs_at_once_too() -> None:
    client = Client(MemoryStorage())
    client.create_queue("q", policy="singleton", partition=True)
    client.enqueue_many("q", [("a", 1), ("b", 2)])
    assert client.cancel_many("q") == 2
    assert client.retry_many("q", state="cancelled") == 2
    assert client.get_queue("q").partition


def test_a_leader_counts_prunes_and_warns(
    client: Client, postgres: PostgresStorage, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.create_queue("q", warning_queue_size=2, retention_seconds=1)
    client.enqueue_many("q", [(f"{n}", n) for n in range(3)])
    leader = Maintenance(postgres, "one", logging.getLogger("pgjq"), report=unexpected())
    follower = Maintenance(postgres, "two", logging.getLogger("pgjq"), report=unexpected())
    with caplog.at_level(logging.WARNING):
        assert leader._step() > 0
        assert follower._step() > 0
    assert caplog.messages == ["queue q has 3 jobs waiting, more than its warning_queue_size of 2"]
    stats = client.get_queue("q").stats
    assert stats is not None
    assert stats.queued == 3
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update pgjq.job set run_at = run_at - interval '1 hour'")
        connection.execute("update pgjq.body set created_at = created_at - interval '1 hour'")
    leader._prune_at = 0.0
    leader._step()
    assert client.get_queue_stats("q").total == 0
    for one in (leader, follower):
        one.stop()


def test_a_worker_keeps_statistics_and_serves_a_definition(client: Client, postgres: PostgresStorage) -> None:
    client.create_queue("letters")
    client.create_queue("q", retry_limit=1, dead_letter="letters")
    queue, failed = Queue("q", storage=postgres), Event()
    queue.on("failed", lambda _: failed.set())

    @queue.execute
    def handle(job: Any) -> None:
        raise ValueError(job.attempts)

    queue.enqueue("a", {"n": 1})
    with queue:
        assert failed.wait(30)
    (letter,) = client.find_jobs("letters")
    assert letter.source is not None
    assert letter.source.error is not None
    assert (letter.source.id, letter.source.attempts, letter.source.error.message) == ("a", 2, "2")
    assert client.get_queue("q").stats is not None


def test_the_command_prunes(client: Client, database: str) -> None:
    client.enqueue("q", "a", 1, retention_seconds=1)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("update pgjq.job set run_at = run_at - interval '1 hour'")
        connection.execute("update pgjq.body set created_at = created_at - interval '1 hour'")
    done = subprocess.run(
        [sys.executable, "-c", "from pgjq.cli import main; main()", "prune"],
        env={**os.environ, "PGJQ_URL": database},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "pruned 1 job\n"
