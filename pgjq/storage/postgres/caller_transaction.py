"""The transaction of `job.transaction(factory)`, on a connection that the factory makes.

The block is always one real transaction: a connection in autocommit mode gets a BEGIN, or is refused before the handler
can write through it. Each kind of connection commits in its own way:

* psycopg: by itself; in autocommit mode by `connection.transaction()`. The connection is closed at the end.
* asyncpg: by `connection.transaction()`. The connection is closed at the end.
* SQLAlchemy: by `commit()`. pgjq first asks the server whether a transaction is open, because the AUTOCOMMIT isolation
  level can be set in many places and does not show on the session. The session is closed at the end.
* Django: by `transaction.atomic`, so that `on_commit` callbacks run. Django keeps the connection.
"""

from __future__ import annotations

from contextlib import asynccontextmanager, suppress
from importlib import import_module
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.pq import TransactionStatus

from pgjq.errors import PgjqError, StorageError, ValidationError
from pgjq.storage.postgres.caller_connection import (
    asyncpg_errors,
    django_errors,
    is_asyncpg,
    is_django,
    sqlalchemy_errors,
    wrap_caller_connection,
)
from pgjq.storage.postgres.error_translation import translated

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable

    from pgjq.blocking import Mode
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.session import Session

INSIDE = "job.transaction() needs a connection that is not inside a transaction already"


@asynccontextmanager
async def caller_transaction(factory: Callable[[], Any], mode: Mode, queries: Queries) -> AsyncGenerator[Session]:
    """Open a transaction on a connection of the factory; commit at the end, roll back on error."""
    made = await _made(factory, mode)
    session = wrap_caller_connection(_django_connection(made.using) if _is_atomic(made) else made, mode, queries)
    if is_django(session.connection):
        transaction = _django(session.connection)
    elif isinstance(session.connection, psycopg.Connection | psycopg.AsyncConnection):
        transaction = _psycopg(session)
    elif is_asyncpg(session.connection):
        transaction = _asyncpg(session.connection)
    else:
        transaction = _sqlalchemy(session)
    async with transaction:
        yield session


async def _made(factory: Callable[[], Any], mode: Mode) -> Any:
    """Return the connection or session that the factory makes.

    In async mode the factory may return an awaitable, as `psycopg.AsyncConnection.connect(…)` does.
    """
    made = factory()
    # SQLAlchemy's connections are awaitable, too, until they have been opened.
    is_unopened = mode == "async" and isawaitable(made) and getattr(made, "sync_connection", None) is None
    return await made if is_unopened else made


@asynccontextmanager
async def _psycopg(session: Session) -> AsyncGenerator[None]:
    connection = session.connection
    try:
        if connection.autocommit:
            if connection.info.transaction_status != TransactionStatus.IDLE:
                raise PgjqError(INSIDE)
            async with session.transaction():
                yield
        else:
            async with _committed(connection):
                yield
    finally:
        with suppress(psycopg.Error):
            await _maybe(connection.close())


@asynccontextmanager
async def _committed(connection: Any) -> AsyncGenerator[None]:
    try:
        yield
        with translated():
            await _maybe(connection.commit())
    except BaseException:
        with suppress(psycopg.Error):
            await _maybe(connection.rollback())
        raise


@asynccontextmanager
async def _asyncpg(connection: Any) -> AsyncGenerator[None]:
    try:
        if connection.is_in_transaction():
            raise PgjqError(INSIDE)
        transaction = connection.transaction()
        with asyncpg_errors():
            await transaction.start()
        try:
            yield
        except BaseException:
            with suppress(StorageError), asyncpg_errors():
                await transaction.rollback()
            raise
        with asyncpg_errors():
            await transaction.commit()
    finally:
        with suppress(StorageError), asyncpg_errors():
            await connection.close()


@asynccontextmanager
async def _sqlalchemy(session: Session) -> AsyncGenerator[None]:
    from sqlalchemy.exc import SQLAlchemyError

    made = session.connection
    try:
        await _check_is_open(session)
        yield
        with sqlalchemy_errors():
            await _maybe(made.commit())
    except BaseException:
        with suppress(SQLAlchemyError):
            await _maybe(made.rollback())
        raise
    finally:
        with suppress(SQLAlchemyError):
            await _maybe(made.close())


async def _check_is_open(session: Session) -> None:
    """Check on the server that a transaction is open: without one, a local setting is lost."""
    await session.fetch("mark_transaction", {})
    ((is_open,),) = await session.fetch("has_transaction_mark", {})
    if not is_open:
        raise ValidationError(
            f"job.transaction() got a {type(session.connection).__name__} in autocommit mode; "
            'make one without isolation_level="AUTOCOMMIT"'
        )


@asynccontextmanager
async def _django(connection: Any) -> AsyncGenerator[None]:
    if connection != _django_connection(connection.alias):
        raise ValidationError(f"django.db.connections does not have this connection as {connection.alias!r}")
    # Durable: inside another atomic() the end of the block would commit nothing; Django then raises an error.
    atomic = import_module("django.db.transaction").Atomic(connection.alias, savepoint=True, durable=True)
    with django_errors():
        atomic.__enter__()
    try:
        yield
    except BaseException as error:
        with suppress(import_module("django.db").Error):
            atomic.__exit__(type(error), error, error.__traceback__)
            _finish(connection.rollback, connection)
        raise
    with django_errors():
        atomic.__exit__(None, None, None)
        _finish(connection.commit, connection)


def _finish(end: Callable[[], None], connection: Any) -> None:
    """End the transaction that `atomic` leaves open on a connection without autocommit."""
    if not connection.get_autocommit() and not connection.in_atomic_block:
        end()


def _is_atomic(made: Any) -> bool:
    """Return whether this is a `django.db.transaction.atomic`, without importing Django."""
    return any(f"{base.__module__}.{base.__name__}" == "django.db.transaction.Atomic" for base in type(made).__mro__)


def _django_connection(alias: str | None) -> Any:
    return import_module("django.db.transaction").get_connection(alias)


async def _maybe(answer: Any) -> None:
    """Await the result of an async connection's method; a sync one returns None."""
    if isawaitable(answer):
        await answer
