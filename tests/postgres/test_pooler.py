"""Behind a transaction pooler the next statement may run in another session: nothing may be prepared in one."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import psycopg
import pytest

import pgjq
from tests.pgbouncer import pgbouncer
from tests.worker.conftest import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OFTEN = pgjq.LeasePolicy(lease=10, heartbeat=0.02)
JOBS = 60


@pytest.fixture
def pooled(database: str, tmp_path: Path) -> Iterator[pgjq.PostgresStorage]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table written (id text)")
        with pgbouncer(database, tmp_path) as conninfo:
            storage = pgjq.PostgresStorage(conninfo)
            yield storage
            storage.close()
        connection.execute("drop table written")


def write(job: pgjq.Job) -> None:
    with job.transaction() as connection:
        connection.execute("insert into written values (%s)", [job.id])


async def write_async(job: pgjq.AsyncJob) -> None:
    async with job.transaction() as connection:
        await connection.execute("insert into written values (%s)", [job.id])


@pytest.mark.parametrize("handler", [write, write_async])
def test_a_worker_runs_and_renews_behind_a_transaction_pooler(
    pooled: pgjq.PostgresStorage, handler: object, caplog: pytest.LogCaptureFixture
) -> None:
    queue = pgjq.Queue("q", storage=pooled, concurrency=4, lease_policy=OFTEN, block_timeout=0.2)
    queue.execute(handler)  # type: ignore[type-var]
    client = pgjq.Client(pooled)
    seen: set[object] = set()

    def look() -> bool:
        seen.update(worker.last_seen for worker in client.get_workers())
        return len(seen) > 12

    with caplog.at_level(logging.WARNING, "pgjq"), queue:
        queue.enqueue_many([(str(n), None) for n in range(JOBS)])
        until(lambda: client.get_queue_stats("q").completed == JOBS)
        until(look)
    assert all(job.attempts == 1 for job in client.find_jobs("q"))
    assert [record.getMessage() for record in caplog.records if "pooler" not in record.getMessage()] == []
