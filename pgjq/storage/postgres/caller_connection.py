"""Caller connections: enqueue inside the caller's own transaction.

A psycopg connection is used directly. SQLAlchemy's sessions and connections, Django's connections and asyncpg's run the
statement themselves, over any driver, because all parameters are text. Nothing here commits, rolls back or changes a
setting: the job exists if and only if the caller's transaction commits. SQLAlchemy, Django and asyncpg are recognised
without importing them.
"""

from __future__ import annotations

import json
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

import psycopg

from pgjq.errors import StorageError, ValidationError
from pgjq.storage.postgres.error_translation import translate
from pgjq.storage.postgres.session import AsyncSession, Rows, Session, SyncSession

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator
    from contextlib import AbstractAsyncContextManager

    from pgjq.blocking import Mode
    from pgjq.storage.postgres.queries import Queries

WANTED = (
    "connection must be a psycopg Connection or AsyncConnection, an asyncpg Connection, a SQLAlchemy Session, "
    "Connection, AsyncSession or AsyncConnection, or a Django connection"
)
_JSON: Final = frozenset((114, 3802))  # Type numbers of json and jsonb.
_TIMESTAMPTZ: Final = 1184
OTHERWISE = "any other driver can call the SQL function pgjq.enqueue(queue, payload, id => …) in its transaction"


def wrap_caller_connection(connection: Any, mode: Mode, queries: Queries) -> Session:
    """Return a session on the caller's connection, which must fit the mode of the call."""
    session, its_mode = recognise(connection, queries)
    if its_mode != mode:
        call = "await AsyncClient" if its_mode == "async" else "Client"
        raise ValidationError(
            f"this is {'an async' if its_mode == 'async' else 'a blocking'} connection: use it with {call}"
        )
    return session


def recognise(connection: Any, queries: Queries) -> tuple[Session, Mode]:
    """Return a session on the caller's connection, and its mode."""
    if isinstance(connection, psycopg.Connection):
        return SyncSession(connection, queries), "sync"  # pyright: ignore[reportUnknownArgumentType]
    if isinstance(connection, psycopg.AsyncConnection):
        return AsyncSession(connection, queries), "async"  # pyright: ignore[reportUnknownArgumentType]
    roots = _roots(connection)
    if roots & {"sqlalchemy.AsyncSession", "sqlalchemy.AsyncConnection", "sqlalchemy.async_scoped_session"}:
        return _AsyncAlchemy(connection, queries), "async"
    if roots & {"sqlalchemy.Session", "sqlalchemy.Connection", "sqlalchemy.scoped_session"}:
        return _Alchemy(connection, queries), "sync"
    if is_django(connection):
        return _Django(connection, queries), "sync"
    if is_asyncpg(connection):
        return _Asyncpg(connection, queries), "async"
    raise ValidationError(f"{WANTED}, not {_full_name(connection)}; {OTHERWISE}")


def _full_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def is_django(connection: Any) -> bool:
    """Return whether this is a Django connection to PostgreSQL."""
    return getattr(connection, "vendor", None) == "postgresql" and hasattr(connection, "cursor")


def is_asyncpg(connection: Any) -> bool:
    """Return whether this is an asyncpg connection, also one from a pool."""
    return bool(_roots(connection) & {"asyncpg.Connection", "asyncpg.PoolConnectionProxy"})


def _roots(connection: object) -> set[str]:
    """Return the package and class name of each class of a connection."""
    return {f"{base.__module__.partition('.')[0]}.{base.__name__}" for base in type(connection).__mro__}


class _CallerSession:
    """Base of sessions that run one statement and open no transaction."""

    def __init__(self, connection: Any, queries: Queries) -> None:
        self.connection = self._connection = connection
        self._queries = queries

    def transaction(self) -> AbstractAsyncContextManager[object]:
        return _CallersPsycopg()


class _Alchemy(_CallerSession):
    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        statement = _alchemy_text(self._queries.sqlalchemy(name))
        with sqlalchemy_errors():
            return [_plain(row) for row in self._connection.execute(statement, params)]

    async def command(self, *texts: str) -> None:
        with sqlalchemy_errors():
            for text in texts:
                self._connection.execute(_alchemy_text(text))


class _AsyncAlchemy(_CallerSession):
    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        statement = _alchemy_text(self._queries.sqlalchemy(name))
        with sqlalchemy_errors():
            return [_plain(row) for row in await self._connection.execute(statement, params)]

    async def command(self, *texts: str) -> None:
        with sqlalchemy_errors():
            for text in texts:  # asyncpg prepares each: one statement at a time.
                await self._connection.execute(_alchemy_text(text))


class _Django(_CallerSession):
    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        with django_errors(), self._connection.cursor() as cursor:
            cursor.execute(self._queries.psycopg(name).decode(), params)
            if cursor.description is None:
                return []
            types = [column[1] for column in cursor.description]
            return [tuple(map(self._value, _plain(row), types)) for row in cursor.fetchall()]

    async def command(self, *texts: str) -> None:
        with django_errors(), self._connection.cursor() as cursor:
            cursor.execute("; ".join(texts))

    @asynccontextmanager
    async def transaction(self) -> AsyncGenerator[None]:
        """Open a transaction, or a savepoint in the caller's; none if Django does not know it."""
        if import_module("django.db").connections[self._connection.alias] is not self._connection:
            yield
            return
        atomic = import_module("django.db.transaction").atomic(self._connection.alias)
        with django_errors():
            atomic.__enter__()
        try:
            yield
        except BaseException as error:
            with django_errors():
                atomic.__exit__(type(error), error, error.__traceback__)
            raise
        with django_errors():
            atomic.__exit__(None, None, None)

    def _value(self, value: Any, kind: int) -> Any:
        """Convert a value to what psycopg returns: Django leaves JSON as text, and times naive."""
        if kind in _JSON and isinstance(value, str):
            return json.loads(value)
        if kind == _TIMESTAMPTZ and value is not None and value.tzinfo is None:
            zone = import_module("zoneinfo").ZoneInfo(self._connection.timezone_name)
            return value.replace(tzinfo=zone).astimezone(UTC)
        return value


class _Asyncpg(_CallerSession):
    async def fetch(self, name: str, params: dict[str, Any]) -> Rows:
        statement, names = self._queries.asyncpg(name)
        with asyncpg_errors():
            return [tuple(row) for row in await self._connection.fetch(statement, *(params[each] for each in names))]

    async def command(self, *texts: str) -> None:
        with asyncpg_errors():
            await self._connection.execute("; ".join(texts))

    def transaction(self) -> AbstractAsyncContextManager[object]:
        """Open a transaction for several statements, also where the caller has opened none."""
        return _CallersPsycopg() if self._connection.is_in_transaction() else self._connection.transaction()


class _CallersPsycopg:
    """A transaction block that does nothing: the transaction is the caller's."""

    async def __aenter__(self) -> object:
        return self

    async def __aexit__(self, *exc: object) -> None:
        return None


def _alchemy_text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)


def _plain(row: Any) -> tuple[Any, ...]:
    """Return a row as a tuple, with psycopg2's memoryviews as bytes."""
    return tuple(value.tobytes() if isinstance(value, memoryview) else value for value in row)


def _from_driver(cause: object, error: Exception) -> Exception:
    return translate(cause) if isinstance(cause, psycopg.Error) else StorageError(str(cause or error))


@contextmanager
def sqlalchemy_errors() -> Generator[None]:
    """Raise SQLAlchemy's errors as pgjq's."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise _from_driver(getattr(error, "orig", None), error) from error


@contextmanager
def django_errors() -> Generator[None]:
    """Raise Django's errors as pgjq's."""
    try:
        yield
    except import_module("django.db").Error as error:
        raise _from_driver(error.__cause__, error) from error


@contextmanager
def asyncpg_errors() -> Generator[None]:
    """Raise asyncpg's errors as pgjq's."""
    asyncpg = import_module("asyncpg")
    try:
        yield
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        raise _from_driver(error, error) from error
