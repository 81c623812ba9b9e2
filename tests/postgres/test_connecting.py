"""A server that cannot be reached is an error in bounded time, which says what is wrong."""

from __future__ import annotations

import asyncio
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import psycopg
import pytest

import pgjq
from pgjq.storage.postgres import pool_waiting, server
from pgjq.storage.postgres.pool import Pools
from tests.worker.conftest import until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from pgjq.blocking import Mode

MODES = pytest.mark.parametrize("mode", ["sync", "async"])


def _enqueue(storage: pgjq.PostgresStorage, mode: Mode, id: str = "a") -> object:
    if mode == "sync":
        return pgjq.Client(storage).enqueue("q", id, None)

    async def enqueue() -> object:
        try:
            return await pgjq.AsyncClient(storage).enqueue("q", id, None)
        finally:
            await storage.operations("async").close()

    return asyncio.run(enqueue())


@MODES
def test_a_server_that_says_nothing_is_given_up(database: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection and never answers, as a firewall or a frozen server does."""
    monkeypatch.setattr(server, "CONNECT_SECONDS", 2)
    with Proxy(database) as proxy:
        proxy.silence()
        storage = pgjq.PostgresStorage(proxy.conninfo)
        with pytest.raises(pgjq.StorageUnavailableError, match="timeout"):
            _enqueue(storage, mode)
        storage.close()
        proxy.restore()


def test_a_server_that_went_away_is_named_as_the_reason(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message does not advise max_size: raising it ends no outage."""
    monkeypatch.setattr(pool_waiting, "PATIENCE", 1.0)
    with Proxy(database) as proxy:
        storage = pgjq.PostgresStorage(proxy.conninfo)
        _enqueue(storage, "sync")
        proxy.refuse()
        with pytest.raises(pgjq.StorageUnavailableError):
            _enqueue(storage, "sync", "b")  # Its connection may have been cut.
        with pytest.raises(pgjq.StorageUnavailableError, match="no connection for 1 s: connection") as raised:
            _enqueue(storage, "sync", "b")
        assert "max_size" not in str(raised.value)
        storage.close()


def test_connections_that_are_all_in_use_are_named_as_the_reason(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_waiting, "PATIENCE", 1.0)
    storage = pgjq.PostgresStorage(database, max_size=1)
    pgjq.Client(storage).create_queue("q")
    with psycopg.connect(database) as holder, ThreadPoolExecutor(1) as threads:
        pgjq.Client(storage).enqueue("q", "a", None, connection=holder)
        waiting = threads.submit(_enqueue, storage, "sync")
        until(lambda: waits_for_a_lock(database))
        with pytest.raises(pgjq.StorageUnavailableError, match=r"all 1 connections .* raise max_size"):
            _enqueue(storage, "sync", "b")
        holder.rollback()
        waiting.result(60)
    storage.close()


def waits_for_a_lock(database: str) -> bool:
    with psycopg.connect(database) as connection:
        return bool(connection.execute("select from pg_locks where not granted").fetchall())


def test_calls_one_after_another_share_one_connection(own_database: str) -> None:
    with pgjq.Client(pgjq.PostgresStorage(own_database)) as client, psycopg.connect(own_database) as observer:
        for number in range(3):
            client.enqueue("q", f"job-{number}", None)
        ours = "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'pgjq'"
        assert observer.execute(ours).fetchone() == (1,)


def test_an_isolation_level_that_changes_under_a_storage_changes_nothing(own_database: str) -> None:
    storage = pgjq.PostgresStorage(own_database)
    client = pgjq.Client(storage)
    client.enqueue("q", "a", None)
    with psycopg.connect(own_database, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set default_transaction_isolation = 'serializable'".encode())
        connection.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )
    shown: list[str] = []
    queue = pgjq.Queue("q", storage=storage)

    def look(job: pgjq.Job) -> None:
        with job.transaction() as connection:
            shown.append(connection.execute("show transaction_isolation").fetchone()[0])

    queue.execute(look)
    with queue:
        until(lambda: shown)
    storage.close()
    assert shown == ["read committed"]


def test_tasks_that_connect_at_once_share_one_thread(own_database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    began: list[int] = []
    check = Pools.check

    def count(pools: Pools) -> None:
        began.append(threading.active_count())
        check(pools)

    async def main() -> set[str]:
        client = pgjq.AsyncClient(storage)
        results = await asyncio.gather(*(client.enqueue("q", f"{n}", None) for n in range(200)))
        await storage.operations("async").close()
        return {result.status for result in results}

    monkeypatch.setattr(Pools, "check", count)
    storage = pgjq.PostgresStorage(own_database)
    assert asyncio.run(main()) == {"queued"}
    assert len(began) == 1
    storage.close()


def test_tasks_that_cannot_connect_share_the_error_and_keep_their_own_deadlines() -> None:
    async def enqueue(client: pgjq.AsyncClient, number: int) -> str:
        try:
            if number % 2:
                await client.enqueue_and_wait("q", f"{number}", None, timeout=0.1)
            await client.enqueue("q", f"{number}", None)
        except pgjq.PgjqError as error:
            return type(error).__name__
        return "none"

    async def main() -> list[str]:
        client = pgjq.AsyncClient(storage)
        return await asyncio.gather(*(enqueue(client, number) for number in range(20)))

    with socket.create_server(("127.0.0.1", 0)) as deaf:
        storage = pgjq.PostgresStorage(f"host=127.0.0.1 port={deaf.getsockname()[1]} user=u dbname=d connect_timeout=4")
        assert asyncio.run(main()) == ["StorageUnavailableError", "TimeoutError"] * 10
        storage.close()
