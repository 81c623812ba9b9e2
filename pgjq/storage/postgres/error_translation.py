"""What psycopg raises, in pgjq's words. Nothing of the driver leaves the adapter but as a `__cause__`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from pgjq.errors import PgjqError, SchemaError, StorageError, StorageUnavailableError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Generator

MIGRATE = 'run "pgjq migrate" or pgjq.migrate(conninfo)'

ROLES = "this login may not do that; which role may is in docs/roles.md"

# The server behind the connection has been demoted, or is going: its neighbours in the pool are no better.
GONE = (
    errors.ReadOnlySqlTransaction,
    errors.AdminShutdown,
    errors.CrashShutdown,
    errors.CannotConnectNow,
)

# A value that was sent cannot be stored: it is too large, or cannot be written in the database's encoding.
ABOUT_VALUES = (psycopg.DataError, errors.ProgramLimitExceeded)

# The statement did nothing and may simply be made again.
TRANSIENT = (errors.DeadlockDetected, errors.SerializationFailure)


@contextmanager
def translated() -> Generator[None]:
    """Turn the driver's errors into pgjq's."""
    try:
        yield
    except psycopg.Error as error:
        raise translate(error) from error


@contextmanager
def refused_outcomes() -> Generator[None]:
    """Tell apart why outcomes were refused.

    An error that is about a value becomes a ValidationError. A job's row that stayed locked is no sign that the
    database is away: it becomes a plain StorageError, after which the other outcomes are offered.
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
    """Find pgjq's word for an error of the driver's."""
    text = str(error).strip() or type(error).__name__
    if isinstance(error, TRANSIENT):
        text = f"{text.splitlines()[0]}; roll the transaction back and make it again"
    match error:
        case PoolClosed():
            return StorageError("this storage has been closed")
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
