"""`job.transaction(factory)` is a real transaction, or refused, whatever kind of connection the factory makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import asyncpg
import django
import psycopg
import pytest
from django.conf import settings
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from pgjq import AsyncJob, Job, PostgresStorage, Queue
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRITE = "insert into effect values (1)"
AUTOCOMMIT: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"}
ALIAS = "pgjq"


@pytest.fixture
def count_effects(database: str) -> Iterator[Callable[[], int]]:
    """Return what counts the rows that handlers have written."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table effect (n integer)")
        yield lambda: len(connection.execute("select from effect").fetchall())
        connection.execute("drop table effect")


def run(storage: PostgresStorage, handler: Callable[..., Any]) -> Any:
    """Run one job once and return its status."""
    queue = Queue("q", storage=storage, block_timeout=30)
    queue.execute(handler)
    ended = Events(queue, "completed", "failed")
    queue.enqueue("job", None, max_attempts=1)
    with queue:
        ended.wait()
    return queue.get_status("job")


def sync_handler(
    factory: Callable[[], Any], error: Exception | None, write: Callable[[Any], Any]
) -> Callable[..., Any]:
    def handler(job: Job) -> None:
        with job.transaction(factory) as connection:
            write(connection)
            if error is not None:
                raise error

    return handler


def async_handler(factory: Callable[[], Any], error: Exception | None) -> Callable[..., Any]:
    async def handler(job: AsyncJob) -> None:
        async with job.transaction(factory) as connection:
            await connection.execute(text(WRITE))
            if error is not None:
                raise error

    return handler


def with_sqlalchemy(database: str, error: Exception | None, kind: str, **options: Any) -> Callable[..., Any]:
    """Make a handler that writes through a SQLAlchemy connection or session."""
    url = "postgresql+psycopg://"
    if kind.startswith("async"):

        async def connect() -> Any:
            return await psycopg.AsyncConnection.connect(database)

        engine = create_async_engine(url, async_creator=connect, poolclass=NullPool, **options)
        return async_handler(lambda: AsyncSession(engine), error)
    plain = create_engine(url, creator=lambda: psycopg.connect(database), poolclass=NullPool, **options)
    factory = plain.connect if kind == "connection" else lambda: Session(plain)
    return sync_handler(factory, error, lambda made: made.execute(text(WRITE)))


def with_psycopg(database: str, error: Exception | None, *, autocommit: bool) -> Callable[..., Any]:
    """Make a handler that writes through a psycopg connection."""
    factory = lambda: psycopg.connect(database, autocommit=autocommit)  # noqa: E731
    return sync_handler(factory, error, lambda made: made.execute(WRITE))


def use_django(database: str) -> None:
    """Have Django know the database by the name ALIAS."""
    if not settings.configured:
        settings.configure(USE_TZ=True, LOGGING_CONFIG=None)
        django.setup()
    given = conninfo_to_dict(database)
    named = {key: given.get(key.lower(), "") for key in ("HOST", "PORT", "USER", "PASSWORD")}
    engine = {"ENGINE": "django.db.backends.postgresql", "NAME": given["dbname"], **named}
    connections.settings[ALIAS] = connections.configure_settings({"default": engine})["default"]


def write_with_django(connection: Any) -> None:
    connection.cursor().execute(WRITE)


def with_django(
    database: str,
    error: Exception | None,
    factory: Callable[[], Any] = lambda: connections[ALIAS],
    write: Callable[[Any], None] = write_with_django,
) -> Callable[..., Any]:
    """Make a handler that writes through Django's connection, and closes it as Django does at the end of a request."""
    use_django(database)
    inside = sync_handler(factory, error, write)

    def handler(job: Job) -> None:
        try:
            inside(job)
        finally:
            connections[ALIAS].close()

    return handler


KINDS: dict[str, Callable[[str, Exception | None], Callable[..., Any]]] = {
    "psycopg": lambda database, error: with_psycopg(database, error, autocommit=False),
    "psycopg, autocommit": lambda database, error: with_psycopg(database, error, autocommit=True),
    "SQLAlchemy connection": lambda database, error: with_sqlalchemy(database, error, "connection"),
    "SQLAlchemy session": lambda database, error: with_sqlalchemy(database, error, "session"),
    "async SQLAlchemy session": lambda database, error: with_sqlalchemy(database, error, "async"),
    "Django connection": with_django,
    "Django atomic": lambda database, error: with_django(database, error, lambda: transaction.atomic(using=ALIAS)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_writes_and_completion_commit_together(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int], kind: str
) -> None:
    status = run(postgres, KINDS[kind](database, None))
    assert (status.state, status.error, count_effects()) == ("completed", None, 1)


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_takes_the_writes_back(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int], kind: str
) -> None:
    status = run(postgres, KINDS[kind](database, KeyError("boom")))
    assert (status.state, status.error.type, count_effects()) == ("failed", "KeyError", 0)


@pytest.mark.parametrize("error", [None, KeyError("boom")])
def test_an_asyncpg_connection_gets_a_transaction(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int], error: Exception | None
) -> None:
    async def handler(job: AsyncJob) -> None:
        given = conninfo_to_dict(database)
        made = await asyncpg.connect(host=given["host"], user=given["user"], database=given["dbname"], ssl=False)
        async with job.transaction(lambda: made) as connection:
            await connection.execute(WRITE)
            if error is not None:
                raise error

    status = run(postgres, handler)
    assert (status.state, count_effects()) == (("completed", 1) if error is None else ("failed", 0))


def test_an_async_psycopg_connection_in_autocommit_mode_gets_a_transaction(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int]
) -> None:
    async def handler(job: AsyncJob) -> None:
        made = await psycopg.AsyncConnection.connect(database, autocommit=True)
        async with job.transaction(lambda: made) as connection:
            await connection.execute(WRITE)
            raise KeyError("boom")

    status = run(postgres, handler)
    assert (status.error.type, count_effects()) == ("KeyError", 0)


AWAITABLE = ("psycopg", "psycopg, autocommit", "asyncpg", "SQLAlchemy, psycopg", "SQLAlchemy, asyncpg")


def awaitable_factory(database: str, kind: str) -> Callable[[], Any]:
    """Return a factory whose result has to be awaited."""
    given = conninfo_to_dict(database)

    async def connect() -> Any:
        if kind.endswith("asyncpg"):
            return await asyncpg.connect(host=given["host"], user=given["user"], database=given["dbname"], ssl=False)
        return await psycopg.AsyncConnection.connect(database, autocommit=kind.endswith("autocommit"))

    if not kind.startswith("SQLAlchemy"):
        return connect
    driver = kind.rpartition(" ")[2]
    return create_async_engine(f"postgresql+{driver}://", async_creator=connect, poolclass=NullPool).connect


@pytest.mark.parametrize("error", [None, KeyError("boom")])
@pytest.mark.parametrize("kind", AWAITABLE)
def test_a_coroutine_may_give_a_factory_whose_connection_is_awaited(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int], kind: str, error: Exception | None
) -> None:
    async def handler(job: AsyncJob) -> None:
        async with job.transaction(awaitable_factory(database, kind)) as connection:
            await connection.execute(text(WRITE) if kind.startswith("SQLAlchemy") else WRITE)
            if error is not None:
                raise error

    status = run(postgres, handler)
    assert (status.state, count_effects()) == (("completed", 1) if error is None else ("failed", 0))
    assert status.error is None or status.error.type == "KeyError"


@pytest.mark.parametrize("kind", ["connection", "session", "async session"])
def test_sqlalchemy_in_autocommit_mode_is_refused_before_the_handler_writes(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int], kind: str
) -> None:
    status = run(postgres, with_sqlalchemy(database, None, kind, **AUTOCOMMIT))
    assert (status.state, status.error.type, count_effects()) == ("failed", "pgjq.errors.ValidationError", 0)
    assert 'in autocommit mode; make one without isolation_level="AUTOCOMMIT"' in status.error.message


def test_a_psycopg_connection_inside_a_transaction_is_refused(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int]
) -> None:
    def busy() -> Any:
        connection = psycopg.connect(database, autocommit=True)
        connection.execute("begin")
        return connection

    status = run(postgres, sync_handler(busy, None, lambda made: made.execute(WRITE)))
    assert "not inside a transaction already" in status.error.message
    assert count_effects() == 0


def test_django_calls_what_waits_for_the_commit(
    database: str, postgres: PostgresStorage, count_effects: Callable[[], int]
) -> None:
    committed: list[int] = []

    def write(connection: Any) -> None:
        connection.cursor().execute(WRITE)
        transaction.on_commit(lambda: committed.append(count_effects()), using=ALIAS)

    assert run(postgres, with_django(database, None, write=write)).state == "completed"
    assert committed == [1]
