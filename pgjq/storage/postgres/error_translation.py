"""Translate psycopg's errors to pgjq's; a driver error leaves this package as a `__cause__`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from pgjq.errors import PgjqError, SchemaError, StorageError, StorageUnavailableError, ValidationError, storage_closed

if TYPE_CHECKING:
    from collections.abc import Generator

MIGRATE = 'run "pgjq migrate" or pgjq.migrate(conninfo)'

ROLES = "this login may not do that; which role may is in docs/roles.md"

# The server was demoted or is shutting down: the other connections of the pool are affected as well.
GONE = (
    errors.ReadOnlySqlTransaction,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
)

# The server cannot store a value: it is too large, or the database's encoding lacks a character of it.
ABOUT_VALUES = (psycopg.DataError, errors.ProgramLimitExceeded)

# The statement had no effect and can be repeated.
TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure)


@contextmanager
def translated() -> Generator[None]:
    """Raise the driver's errors as pgjq's."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


@contextmanager
def refused_outcomes() -> Generator[None]:
    """Raise ValidationError if an outcome cannot be stored, StorageError if its row is locked.

    A locked row does not mean that the database is unavailable: after a plain StorageError the settler sends the other
    outcomes.
    """
    try:
        yield
    except StorageError as error:
        if isinstance(error.__cause__, ABOUT_VALUES):
            raise ValidationError(str(error)) from error.__cause__
        if isinstance(error.__cause__, errors.LockNotAvailable):
            raise StorageError(f"another transaction keeps a job locked: {error}") from error.__cause__
        raise


def translate(error: psycopg.Error) -> PgjqError:
    """Return pgjq's error for an error of the driver."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, TRANSIENT):
        text = f"{text.splitlines()[0]}; roll the transaction back and make it again"
    match error:
        case PoolClosed():
            return storage_closed()
        case PoolTimeout():
            return StorageUnavailableError(
                "no connection became free in time; raise max_size, or look for one that is held too long"
            )
        case errors.InvalidSchemaName() | errors.UndefinedTable() | errors.UndefinedFunction():
            return SchemaError(f"{text.splitlines()[0]}; the schema is missing or incomplete: {MIGRATE}")
        case errors.InsufficientPrivilege():
            return StorageError(f"{text.splitlines()[0]}: {ROLES}")
        case psycopg.OperationalError() | psycopg.InterfaceError() | errors.ReadOnlySqlTransaction():
            return StorageUnavailableError(text)
        case _:
            return StorageError(text)
