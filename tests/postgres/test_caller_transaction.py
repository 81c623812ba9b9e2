"""Enqueueing inside the caller's own transaction: the job exists if and only if that transaction commits.

A scenario is written once, as a coroutine, and runs on every kind of connection that people have. With a blocking one
it is driven to its end without an event loop, as the blocking client does it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from functools import partial
from threading import Barrier
from typing import TYPE_CHECKING, Any

import asyncpg
import django
import psycopg
import pytest
from django.conf import settings
from django.db.utils import ConnectionHandler
from django.utils.connection import ConnectionProxy
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import pgjq
from pgjq.blocking import Mode, drive
from pgjq.migrate import sqlalchemy_url
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

SERIALIZATION_FAILURE = "40001"
IN_FAILED_TRANSACTION = "25P02"


@dataclass
class Caller:
    """A caller with a connection, in the middle of its own transaction."""

    connection: Any
    client: Any
    mode: Mode

    async def enqueue(self, id: str, **options: Any) -> pgjq.EnqueueResult:
        return await self._done(self.client.enqueue("mail", id, {"n": 1}, connection=self.connection, **options))

    async def enqueue_many(self, jobs: list[Any]) -> list[pgjq.EnqueueResult]:
        return await self._done(self.client.enqueue_many("mail", jobs, connection=self.connection))

    async def commit(self) -> None:
        await self._done(self.connection.commit())

    async def rollback(self) -> None:
        await self._done(self.connection.rollback())

    async def run(self, statement: str) -> None:
        await self._done(self.connection.execute(text(statement) if self._is_alchemy else statement))

    async def is_usable(self) -> bool:
        await self.run("create temporary table if not exists still_usable ()")
        return True

    @property
    def _is_alchemy(self) -> bool:
        return type(self.connection).__module__.startswith("sqlalchemy")

    async def _done(self, answer: Any) -> Any:
        return await answer if self.mode == "async" else answer


@asynccontextmanager
async def blocking_psycopg(conninfo: str, **options: Any) -> AsyncIterator[Any]:
    with closing(psycopg.connect(conninfo, **options)) as connection:
        yield connection


@asynccontextmanager
async def async_psycopg(conninfo: str, **options: Any) -> AsyncIterator[Any]:
    connection = await psycopg.AsyncConnection.connect(conninfo, **options)
    try:
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def alchemy(conninfo: str, *, made_of: Callable[[Any], Any]) -> AsyncIterator[Any]:
    engine = create_engine(sqlalchemy_url(conninfo))
    try:
        with closing(made_of(engine)) as connection:
            yield connection
    finally:
        engine.dispose()


@asynccontextmanager
async def async_alchemy(conninfo: str, *, made_of: Callable[[Any], Any], driver: str) -> AsyncIterator[Any]:
    engine = asyncpg_engine(conninfo) if driver == "asyncpg" else create_async_engine(sqlalchemy_url(conninfo))
    try:
        async with made_of(engine) as connection:
            yield connection
    finally:
        await engine.dispose()


def asyncpg_engine(conninfo: str) -> AsyncEngine:
    arguments = asyncpg_arguments(conninfo)
    return create_async_engine("postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(**arguments))


def asyncpg_arguments(conninfo: str) -> dict[str, Any]:
    given = conninfo_to_dict(conninfo)
    names = {"host": "host", "port": "port", "user": "user", "password": "password", "dbname": "database"}
    return {ours: given[name] for name, ours in names.items() if name in given}


class OpenTransaction(asyncpg.Connection):  # type: ignore[type-arg]
    """An asyncpg connection that is always in a transaction, with the verbs that the others have."""

    async def commit(self) -> None:
        await self.execute("commit")
        await self.execute("begin")

    async def rollback(self) -> None:
        await self.execute("rollback")
        await self.execute("begin")


@asynccontextmanager
async def raw_asyncpg(conninfo: str) -> AsyncIterator[Any]:
    connection = await asyncpg.connect(**asyncpg_arguments(conninfo), connection_class=OpenTransaction)
    try:
        await connection.execute("begin")
        yield connection
    finally:
        await connection.close()


@asynccontextmanager
async def pooled_asyncpg(conninfo: str) -> AsyncIterator[Any]:
    arguments = asyncpg_arguments(conninfo)
    async with (
        asyncpg.create_pool(**arguments, min_size=1, connection_class=OpenTransaction) as pool,
        pool.acquire() as connection,
    ):
        await connection.execute("begin")
        try:
            yield connection
        finally:
            await connection.execute("rollback")  # Else the pool says that it had to.


@asynccontextmanager
async def django_connection(conninfo: str) -> AsyncIterator[Any]:
    """Yield what `from django.db import connection` gives, with an `execute` as the others have it."""
    if not settings.configured:
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    given = conninfo_to_dict(conninfo)
    named = {key: given.get(key.lower(), "") for key in ("HOST", "PORT", "USER", "PASSWORD")}
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], **named}
    with closing(ConnectionProxy(ConnectionHandler({"default": database}), "default")) as connection:
        connection.set_autocommit(False)
        connection.execute = lambda statement: connection.cursor().execute(statement)
        yield connection


KINDS: dict[str, tuple[Mode, Callable[[str], Any]]] = {
    "psycopg": ("sync", blocking_psycopg),
    "async psycopg": ("async", async_psycopg),
    "SQLAlchemy connection": ("sync", partial(alchemy, made_of=Engine.connect)),
    "SQLAlchemy session": ("sync", partial(alchemy, made_of=Session)),
    "async SQLAlchemy connection": ("async", partial(async_alchemy, made_of=AsyncEngine.connect, driver="psycopg")),
    "async SQLAlchemy session": ("async", partial(async_alchemy, made_of=AsyncSession, driver="psycopg")),
    "SQLAlchemy connection on asyncpg": (
        "async",
        partial(async_alchemy, made_of=AsyncEngine.connect, driver="asyncpg"),
    ),
    "SQLAlchemy session on asyncpg": ("async", partial(async_alchemy, made_of=AsyncSession, driver="asyncpg")),
    "Django": ("sync", django_connection),
    "asyncpg": ("async", raw_asyncpg),
}
# What callers have set up for themselves does not matter.
DICTS = {"row_factory": dict_row}
VARIANTS: dict[str, tuple[Mode, Callable[[str], Any]]] = {
    "psycopg with dict rows": ("sync", partial(blocking_psycopg, **DICTS, cursor_factory=psycopg.ClientCursor)),
    "psycopg with raw cursors": ("sync", partial(blocking_psycopg, cursor_factory=psycopg.RawCursor)),
    "async psycopg with dict rows": ("async", partial(async_psycopg, **DICTS, cursor_factory=psycopg.AsyncRawCursor)),
    "SQLAlchemy scoped session": ("sync", partial(alchemy, made_of=lambda e: scoped_session(sessionmaker(e)))),
    "asyncpg from a pool": ("async", pooled_asyncpg),
}
FEW = [(f"job-{n}", n) for n in range(3)]
MORE_THAN_ONE_CHUNK = [(f"job-{n}", n) for n in range(5_001)]
WITHOUT_IDS = [(None, n) for n in range(150)]

every_kind = pytest.mark.parametrize("kind", KINDS)
every_kind_and_variant = pytest.mark.parametrize("kind", KINDS | VARIANTS)
every_driver = pytest.mark.parametrize(
    "kind", ["psycopg", "async psycopg", "SQLAlchemy session", "SQLAlchemy session on asyncpg", "Django", "asyncpg"]
)
every_batch = pytest.mark.parametrize("batch", [FEW, WITHOUT_IDS], ids=["few", "without ids"])
every_mode = pytest.mark.parametrize("mode", ["sync", "async"])


def perform(scenario: Callable[[Caller], Awaitable[None]], kind: str, storage: Any) -> None:
    """Run a scenario on a connection of this kind; what it leaves open is rolled back."""
    mode, connect = (KINDS | VARIANTS)[kind]

    async def whole() -> None:
        async with connect(storage.conninfo) as connection:
            client = (pgjq.Client if mode == "sync" else pgjq.AsyncClient)(storage)
            await scenario(Caller(connection, client, mode))

    if mode == "sync":
        drive(whole())
    else:
        asyncio.run(whole())


async def enqueue_and_roll_back(caller: Caller, batch: list[Any]) -> None:
    results = await caller.enqueue_many(batch)
    assert {result.status for result in results} == {"queued"}
    await caller.rollback()


async def enqueue_and_commit(caller: Caller, batch: list[Any]) -> None:
    await caller.enqueue_many(batch)
    assert count(caller.client.storage) == 0
    await caller.commit()


def count(storage: pgjq.PostgresStorage) -> int:
    return pgjq.Client(storage).get_queue_stats("mail").total


def complete_everything(storage: pgjq.PostgresStorage, result: bytes) -> None:
    operations = storage.operations("sync")
    claimed = drive(operations.claim(["mail"], worker="w", limit=10, policy=pgjq.LeasePolicy()))
    drive(operations.settle([Settlement(job.lease, Completed(result)) for job in claimed]))


def enqueue_with(connection: Any, storage: Any, mode: Mode) -> None:
    if mode == "sync":
        pgjq.Client(storage).enqueue("mail", "one", 1, connection=connection)
    else:
        asyncio.run(pgjq.AsyncClient(storage).enqueue("mail", "one", 1, connection=connection))


def sqlstates(error: BaseException | None) -> list[Any]:
    """Collect what the errors that led to this one say in PostgreSQL's own terms."""
    found: list[Any] = []
    while error is not None:
        found.append(getattr(error, "sqlstate", None))
        error = error.__cause__
    return found


@every_kind_and_variant
def test_a_job_is_not_there_when_the_transaction_rolls_back(kind: str, postgres: pgjq.PostgresStorage) -> None:
    async def scenario(caller: Caller) -> None:
        assert (await caller.enqueue("one")).status == "queued"
        await caller.rollback()

    perform(scenario, kind, postgres)
    assert count(postgres) == 0


@every_kind_and_variant
def test_a_job_is_there_when_the_transaction_commits_and_not_before(kind: str, postgres: pgjq.PostgresStorage) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.enqueue("one", priority=7)
        assert pgjq.Client(postgres).get_status("mail", "one") is None
        await caller.commit()

    perform(scenario, kind, postgres)
    status = pgjq.Client(postgres).get_status("mail", "one")
    assert status is not None
    assert (status.state, status.priority) == ("queued", 7)


@every_batch
@every_kind_and_variant
def test_a_batch_is_not_there_when_the_transaction_that_it_opens_rolls_back(
    kind: str, batch: list[Any], postgres: pgjq.PostgresStorage
) -> None:
    perform(lambda caller: enqueue_and_roll_back(caller, batch), kind, postgres)
    assert count(postgres) == 0


@every_driver
def test_a_batch_of_more_than_one_chunk_is_not_there_when_the_transaction_that_it_opens_rolls_back(
    kind: str, postgres: pgjq.PostgresStorage
) -> None:
    perform(lambda caller: enqueue_and_roll_back(caller, MORE_THAN_ONE_CHUNK), kind, postgres)
    assert count(postgres) == 0


@every_batch
@every_kind_and_variant
def test_a_batch_is_there_when_the_transaction_commits_and_not_before(
    kind: str, batch: list[Any], postgres: pgjq.PostgresStorage
) -> None:
    perform(lambda caller: enqueue_and_commit(caller, batch), kind, postgres)
    assert count(postgres) == len(batch)


@every_driver
def test_a_batch_of_more_than_one_chunk_is_there_when_the_transaction_commits_and_not_before(
    kind: str, postgres: pgjq.PostgresStorage
) -> None:
    perform(lambda caller: enqueue_and_commit(caller, MORE_THAN_ONE_CHUNK), kind, postgres)
    found = pgjq.Client(postgres).find_jobs("mail", limit=10_000)
    assert [job.id for job in found] == [wanted for wanted, _ in MORE_THAN_ONE_CHUNK]


@every_batch
@every_driver
def test_a_batch_and_what_the_caller_wrote_before_it_are_rolled_back_together(
    kind: str, batch: list[Any], postgres: pgjq.PostgresStorage
) -> None:
    async def scenario(caller: Caller) -> None:
        await caller.run("insert into pgjq.queue (name) values ('the caller''s own row')")
        await enqueue_and_roll_back(caller, batch)

    perform(scenario, kind, postgres)
    with psycopg.connect(postgres.conninfo) as connection:
        assert connection.execute("select from pgjq.queue union all select from pgjq.body").rowcount == 0


@every_kind_and_variant
def test_a_taken_id_is_answered_and_leaves_the_transaction_usable(kind: str, postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "taken", 1)

    async def scenario(caller: Caller) -> None:
        assert await caller.enqueue("taken") == pgjq.EnqueueResult("duplicate", "taken", "queued")
        mixed = await caller.enqueue_many([("new", 1), ("taken", 2)])
        assert [result.status for result in mixed] == ["queued", "duplicate"]
        assert await caller.is_usable()
        await caller.commit()

    perform(scenario, kind, postgres)
    assert count(postgres) == 2


@every_kind
def test_an_id_is_taken_by_an_enqueue_of_the_same_transaction(kind: str, postgres: pgjq.PostgresStorage) -> None:
    async def scenario(caller: Caller) -> None:
        first = await caller.enqueue("one")
        second = await caller.enqueue("one")
        assert (first.status, second.status) == ("queued", "duplicate")
        await caller.commit()

    perform(scenario, kind, postgres)
    assert count(postgres) == 1


@every_kind
def test_a_cached_result_is_the_answer_inside_a_transaction(kind: str, postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "done", 1)
    complete_everything(postgres, b'{"sent": true}')

    async def scenario(caller: Caller) -> None:
        expected = pgjq.EnqueueResult("completed", "done", "completed", {"sent": True})
        assert await caller.enqueue("done") == expected
        assert await caller.is_usable()

    perform(scenario, kind, postgres)


@every_driver
def test_every_option_reaches_the_job(kind: str, postgres: pgjq.PostgresStorage) -> None:
    options: dict[str, Any] = {"delay": 60, "max_attempts": 9, "singleton_key": 'it\'s 100% \\ "odd"', "priority": -3}

    async def scenario(caller: Caller) -> None:
        await caller.enqueue("one", **options)
        await caller.enqueue_many([pgjq.NewJob("two", 1, **options), ("three", 1)])
        await caller.commit()

    perform(scenario, kind, postgres)
    statuses = pgjq.Client(postgres).get_statuses("mail", ["one", "two"])
    for status in statuses.values():
        assert status.run_at is not None
        assert round((status.run_at - status.created_at).total_seconds()) == 60
        assert (status.max_attempts, status.singleton_key, status.priority) == (9, options["singleton_key"], -3)
    assert len(statuses) == 2


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@every_driver
def test_stricter_isolation_works(kind: str, level: str, postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "taken", 1)

    async def scenario(caller: Caller) -> None:
        await caller.run(f"set transaction isolation level {level}")
        assert (await caller.enqueue("new")).status == "queued"
        assert (await caller.enqueue("taken")).status == "duplicate"
        await caller.commit()

    perform(scenario, kind, postgres)
    assert count(postgres) == 2


@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
@every_driver
def test_an_id_that_a_strict_snapshot_cannot_see_is_a_serialization_failure(
    kind: str, level: str, postgres: pgjq.PostgresStorage
) -> None:
    pgjq.Client(postgres).enqueue("mail", "makes the queue", 1)

    async def scenario(caller: Caller) -> None:
        await caller.run(f"set transaction isolation level {level}")
        await caller.run("select from pgjq.queue")
        pgjq.Client(postgres).enqueue("mail", "rival", 1)
        with pytest.raises(pgjq.StorageError) as caught:
            await caller.enqueue("rival")
        assert SERIALIZATION_FAILURE in sqlstates(caught.value.__cause__)
        await caller.rollback()
        assert (await caller.enqueue("rival")).status == "duplicate"

    perform(scenario, kind, postgres)


@every_kind
def test_a_transaction_that_has_failed_before_is_a_storage_error(kind: str, postgres: pgjq.PostgresStorage) -> None:
    async def scenario(caller: Caller) -> None:
        with pytest.raises(Exception, match="division by zero"):
            await caller.run("select 1 / 0")
        for batch in (FEW, WITHOUT_IDS):
            with pytest.raises(pgjq.StorageError) as caught:
                await caller.enqueue_many(batch)
            assert IN_FAILED_TRANSACTION in sqlstates(caught.value.__cause__)

    perform(scenario, kind, postgres)


@pytest.mark.parametrize(
    "kind", ["psycopg", "async psycopg", "SQLAlchemy connection", "async SQLAlchemy connection", "asyncpg"]
)
def test_a_closed_connection_is_a_storage_error(kind: str, postgres: pgjq.PostgresStorage) -> None:
    async def scenario(caller: Caller) -> None:
        await caller._done(caller.connection.close())
        with pytest.raises(pgjq.StorageError, match="closed"):
            await caller.enqueue("one")

    perform(scenario, kind, postgres)


@every_driver
def test_subscribers_hear_of_a_job_once_it_is_committed_and_never_of_one_rolled_back(
    kind: str, postgres: pgjq.PostgresStorage
) -> None:
    subscription = drive(postgres.operations("sync").subscribe("mail"))

    async def scenario(caller: Caller) -> None:
        await caller.enqueue("withdrawn")
        await caller.rollback()
        await caller.enqueue("kept")
        await caller.commit()

    perform(scenario, kind, postgres)
    heard = drive(subscription.next(30))
    assert [(event.name, event.id) for event in heard] == [("queued", "kept")]
    drive(subscription.close())


@every_mode
def test_on_an_autocommit_connection_jobs_are_there_at_once(mode: Mode, postgres: pgjq.PostgresStorage) -> None:
    async def awaited() -> None:
        client = pgjq.AsyncClient(postgres)
        async with await psycopg.AsyncConnection.connect(postgres.conninfo, autocommit=True) as connection:
            await client.enqueue("mail", "one", 1, connection=connection)
            for batch in (MORE_THAN_ONE_CHUNK, WITHOUT_IDS):
                await client.enqueue_many("mail", batch, connection=connection)
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE

    if mode == "async":
        asyncio.run(awaited())
    else:
        client = pgjq.Client(postgres)
        with psycopg.connect(postgres.conninfo, autocommit=True) as connection:
            client.enqueue("mail", "one", 1, connection=connection)
            for batch in (MORE_THAN_ONE_CHUNK, WITHOUT_IDS):
                client.enqueue_many("mail", batch, connection=connection)
            assert connection.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
    assert count(postgres) == 1 + 5_001 + 150


def test_on_an_asyncpg_connection_without_a_transaction_a_batch_is_there_at_once(
    postgres: pgjq.PostgresStorage,
) -> None:
    async def awaited() -> None:
        connection = await asyncpg.connect(**asyncpg_arguments(postgres.conninfo))
        client = pgjq.AsyncClient(postgres)
        for batch in (FEW, MORE_THAN_ONE_CHUNK):
            await client.enqueue_many("mail", batch, connection=connection)
        assert not connection.is_in_transaction()
        async with connection.transaction():
            await client.enqueue("mail", "in a block", 1, connection=connection)
        await connection.close()

    asyncio.run(awaited())
    assert count(postgres) == 5_001 + 1


@every_kind
def test_a_connection_of_the_other_mode_is_refused_and_stays_usable(kind: str, postgres: pgjq.PostgresStorage) -> None:
    async def scenario(caller: Caller) -> None:
        if caller.mode == "sync":
            other = pgjq.AsyncClient(postgres).enqueue("mail", "one", 1, connection=caller.connection)
            with pytest.raises(pgjq.ValidationError, match="use it with Client"):
                drive(other)
        else:
            with pytest.raises(pgjq.ValidationError, match="use it with await AsyncClient"):
                pgjq.Client(postgres).enqueue("mail", "one", 1, connection=caller.connection)
        assert await caller.is_usable()

    perform(scenario, kind, postgres)


@every_mode
def test_a_storage_without_transactions_refuses_a_connection(mode: Mode, database: str) -> None:
    storage = pgjq.MemoryStorage()
    with psycopg.connect(database) as connection, pytest.raises(pgjq.UnsupportedError, match="PostgresStorage"):
        enqueue_with(connection, storage, mode)
    assert pgjq.Client(storage).get_status("mail", "one") is None


@pytest.mark.parametrize("what", ["url", "number", "cursor", "engine", "session maker", "sqlite"])
@every_mode
def test_what_is_no_connection_is_refused_with_a_list_of_what_is(
    mode: Mode, what: str, postgres: pgjq.PostgresStorage
) -> None:
    engine = create_engine(sqlalchemy_url(postgres.conninfo))
    with psycopg.connect(postgres.conninfo) as connection:
        sqlite = sqlite3.connect(":memory:")
        given = {
            "url": postgres.conninfo,
            "number": 5,
            "cursor": connection.cursor(),
            "engine": engine,
            "session maker": sessionmaker(engine),
            "sqlite": sqlite,
        }[what]
        kind = f"{type(given).__module__}.{type(given).__qualname__}"
        with pytest.raises(pgjq.ValidationError, match=rf"psycopg Connection .* SQLAlchemy Session.* not {kind}; any"):
            enqueue_with(given, postgres, mode)
        sqlite.close()
    engine.dispose()


def test_twenty_transactions_at_once_enqueue_one_id_and_one_of_them_gets_it(postgres: pgjq.PostgresStorage) -> None:
    client, together = pgjq.Client(postgres), Barrier(20)

    def enqueue(n: int) -> str:
        with psycopg.connect(postgres.conninfo) as connection:
            together.wait()
            return client.enqueue("mail", "same", n, connection=connection).status

    with ThreadPoolExecutor(20) as threads:
        statuses = list(threads.map(enqueue, range(20)))
    assert sorted(statuses) == ["duplicate"] * 19 + ["queued"]
    assert count(postgres) == 1


def test_an_id_in_a_transaction_that_rolls_back_goes_to_whoever_waited_for_it(postgres: pgjq.PostgresStorage) -> None:
    client = pgjq.Client(postgres)
    client.enqueue("mail", "makes the queue", 1)

    def wait_for_it(connection: psycopg.Connection[Any]) -> str:
        with connection:
            return client.enqueue("mail", "same", 2, connection=connection).status

    with psycopg.connect(postgres.conninfo) as first, ThreadPoolExecutor(1) as threads:
        client.enqueue("mail", "same", 1, connection=first)
        second = psycopg.connect(postgres.conninfo)
        waiting = threads.submit(wait_for_it, second)
        while not is_blocked(second.info.backend_pid, postgres.conninfo):
            assert not waiting.done()
        first.rollback()
        assert waiting.result() == "queued"


def is_blocked(backend: int, conninfo: str) -> bool:
    with psycopg.connect(conninfo) as connection:
        row = connection.execute("select cardinality(pg_blocking_pids(%s)) > 0", [backend]).fetchone()
    return bool(row and row[0])
