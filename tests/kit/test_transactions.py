"""Tests whose transaction is rolled back: everything happens in it, on every kind of connection."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.orm import Session

import pgjq
from pgjq.testing import (
    PostgresClock,
    assert_enqueued,
    capture,
    drain,
    refute_enqueued,
    run,
    use_connection,
    use_storage,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


def define(storage: Any, kind: Any = pgjq.Queue) -> tuple[Any, Any]:
    queue = kind("mail", storage=storage)

    @queue.task(max_attempts=2, retry_backoff=False, retry_delay=0)
    def divide(n: int) -> int:
        return 6 // n

    return queue, divide


@pytest.fixture(params=["psycopg", "sqlalchemy connection", "sqlalchemy session"])
def connection(request: pytest.FixtureRequest, database: str) -> Iterator[Any]:
    """The usual fixture: a connection in a transaction that is rolled back."""
    if request.param == "psycopg":
        with psycopg.connect(database) as connection:
            yield connection
            connection.rollback()
        return
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database))
    with engine.connect() as connection, connection.begin() as transaction:
        if request.param == "sqlalchemy session":
            with Session(connection, join_transaction_mode="create_savepoint") as session:
                yield session
        else:
            yield connection
        transaction.rollback()
    engine.dispose()


def test_a_drain_inside_the_tests_transaction(postgres: pgjq.PostgresStorage, connection: Any) -> None:
    queue, divide = define(postgres)
    with capture(queue, connection=connection) as jobs:
        divide.using(id="two", connection=connection).enqueue(2)
        divide.enqueue(0)
        assert_enqueued(divide, 2)
    assert len(jobs) == 2
    assert drain(queue) == 0
    assert drain(queue, connection=connection) == 3
    assert run(divide.using(connection=connection), 3) == 2
    with use_connection(postgres, connection):
        assert queue.get_result("two") == 3
        assert queue.client.get_queue_stats("mail").failed == 1
    refute_enqueued(divide)


@pytest.mark.parametrize("level", ["READ_COMMITTED", "REPEATABLE_READ"])
def test_the_clock_moves_inside_the_tests_transaction(
    postgres: pgjq.PostgresStorage, database: str, level: str
) -> None:
    clock = PostgresClock(postgres.conninfo)
    began, at = clock.now(), list[timedelta]()
    queue = pgjq.Queue("mail", storage=postgres)

    @queue.task(retry_delay=60, retry_backoff=False, max_attempts=3)
    def unlucky() -> None:
        at.append(clock.now() - began)
        raise OSError("no line")

    @queue.schedule("0 3 * * *")
    def nightly() -> None:
        at.append(clock.now() - began)

    with psycopg.connect(database) as connection:
        connection.isolation_level = psycopg.IsolationLevel[level]
        unlucky.using(delay=600, connection=connection).enqueue()
        assert drain(queue, until=timedelta(hours=6), connection=connection) == 4
        unlucky.using(delay=1800, connection=connection).enqueue()
        assert drain(queue, connection=connection) == 0
        clock.advance(hours=1)
        assert drain(queue, connection=connection) == 1
        connection.rollback()
    clock.restore()
    minutes = [time // timedelta(minutes=1) for time in at]
    assert minutes == [10, 11, 12, 180, 420]


def test_a_failed_statement_of_a_handler_leaves_the_transaction_usable(
    postgres: pgjq.PostgresStorage, database: str
) -> None:
    queue = pgjq.Queue("mail", storage=postgres)
    with psycopg.connect(database) as connection:
        connection.execute("create table mine (n int primary key)")

        @queue.task(max_attempts=1)
        def insert(n: int) -> None:
            connection.execute("insert into mine values (%s)", [n])

        with use_connection(postgres, connection):
            insert.enqueue(1)
            insert.enqueue(1)
            insert.enqueue(2)
            assert drain(queue) == 3
            assert queue.client.get_queue_stats("mail").failed == 1
        assert connection.execute("select n from mine order by n").fetchall() == [(1,), (2,)]
        connection.rollback()


def test_job_transactions_are_savepoints(postgres: pgjq.PostgresStorage, connection: Any) -> None:
    queue = pgjq.Queue("mail", storage=postgres)
    execute = (lambda s: s) if isinstance(connection, psycopg.Connection) else text
    connection.execute(execute("create temporary table mine (n int)"))

    @queue.task(max_attempts=1)
    def write(n: int) -> int:
        job = pgjq.current_job()
        assert isinstance(job, pgjq.Job)
        with job.transaction() as mine:
            mine.execute(execute(f"insert into mine values ({n})"))  # noqa: S608
            job.result = 1 // n
        return 0  # Not stored: the block has completed the job.

    with use_connection(postgres, connection):
        assert run(write, 1) == 1
        with pytest.raises(ZeroDivisionError):
            run(write, 0)
    assert [tuple(row) for row in connection.execute(execute("select n from mine"))] == [(1,)]


def test_an_async_connection(postgres: pgjq.PostgresStorage, database: str) -> None:
    queue, divide = define(postgres, pgjq.AsyncQueue)

    @queue.task
    async def double(n: int) -> int:
        return 2 * n

    async def story() -> None:
        async with await psycopg.AsyncConnection.connect(database) as connection:
            async with capture(queue, connection=connection) as jobs:
                await double.enqueue(2)
                with pytest.raises(pgjq.ValidationError, match="async connection"):
                    assert_enqueued(double)
            assert jobs[0].args == [2]
            assert_enqueued(double, 2, since=jobs)
            assert await drain(queue, connection=connection) == 1
            assert await run(double.using(connection=connection), 4) == 8
            await connection.rollback()
        refute_enqueued(divide)
        await postgres.operations("async").close()

    asyncio.run(story())


def test_other_storages_have_no_transactions() -> None:
    queue, _ = define(pgjq.MemoryStorage())
    with pytest.raises(pgjq.UnsupportedError, match="MemoryStorage has no transactions"):
        drain(queue, connection=object())


def test_queues_of_an_application_get_the_tests_storage() -> None:
    theirs = pgjq.MemoryStorage()
    queue, divide = define(theirs)
    with use_storage(pgjq.MemoryStorage(), queue):
        assert run(divide, 2) == 3
        assert_enqueued(divide, 2)
    assert queue.storage is theirs
    refute_enqueued(divide, 2)
