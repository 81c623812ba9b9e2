"""An outage is a handful of log lines: its begin, its end, and summaries between them, whatever is tried meanwhile."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, Any

import psycopg_pool
import pytest

from pgjq import LeasePolicy, PostgresStorage, Queue, Reaper, RedisStorage, Worker
from pgjq.storage.postgres import background_connection, pool_waiting
from tests.redis_server import RedisServer
from tests.worker.conftest import Events, until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pgjq.storage.base import Storage

POLICY = LeasePolicy(lease=60, heartbeat=0.2, reap_interval=0.2)
FAILURES, HANDFUL = 30, 8
AGAIN = "storage available again after"


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def go_through(
    storage: Storage,
    caplog: pytest.LogCaptureFixture,
    begin: Callable[[], Any],
    end: Callable[[], Any],
) -> None:
    """Have a worker fail again and again. Callbacks of one queue get errors; the other has none, hence the log."""
    quiet, counted = (Queue(n, storage=storage, lease_policy=POLICY, block_timeout=30) for n in ("quiet", "counted"))
    for queue in (quiet, counted):
        queue.execute(lambda job: job.id)
    completed, errors = Events(quiet, "completed"), Events(counted, "error")
    with Worker(quiet, counted):
        quiet.enqueue("before", None)
        completed.wait()
        begin()
        until(lambda: lines(caplog) and len(errors.events) >= FAILURES)
        end()
        until(lambda: any(line.startswith(AGAIN) for line in lines(caplog)))
        quiet.enqueue("after", None)
        completed.wait(2)
    told = lines(caplog)
    assert told[0].startswith("storage unavailable, retrying: ")
    assert len(told) <= HANDFUL, told


def test_a_database_that_refuses_connections_is_a_handful_of_lines(
    database: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def begin() -> None:
        # Statements wait 10 s for a connection before they fail; here they fail often.
        for module in (pool_waiting, background_connection):
            monkeypatch.setattr(module, "PATIENCE", 0.1)
        proxy.refuse()

    def end() -> None:
        monkeypatch.undo()
        proxy.restore()

    with Proxy(database) as proxy, closing(PostgresStorage(proxy.conninfo)) as storage:
        go_through(storage, caplog, begin, end)


def test_a_redis_that_is_down_is_a_handful_of_lines(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with (
        RedisServer(tmp_path, "--appendonly", "yes", "--appendfsync", "no") as server,
        closing(RedisStorage(server.url)) as storage,
    ):
        go_through(storage, caplog, server.kill, server.start)


def test_a_reaper_tells_of_an_outage_and_of_its_end(database: str, caplog: pytest.LogCaptureFixture) -> None:
    with Proxy(database) as proxy, closing(PostgresStorage(proxy.conninfo)) as storage, Reaper(storage=storage):
        proxy.refuse()
        until(lambda: lines(caplog))
        proxy.restore()
        until(lambda: lines(caplog)[-1].startswith(AGAIN))
    assert lines(caplog)[0].startswith("storage unavailable, retrying: ")


def test_pools_of_others_are_logged_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(psycopg_pool.PoolTimeout):
        psycopg_pool.ConnectionPool("host=127.0.0.1 port=1", min_size=1, open=True).wait(0.01)
    until(lambda: [record for record in caplog.records if record.name == "psycopg.pool"])
