"""Translate redis-py's errors into pgjq's; they leave the adapter only as a `__cause__`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis import exceptions

from pgjq.errors import PgjqError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator

# Temporary errors of a server that cannot, not yet, or no longer serve writes. Redis 6.2 puts the code into the text
# of a script's error; newer servers reply with the code itself, which the driver may turn into an error class and drop.
_TEMPORARY_ERRORS = (exceptions.ReadOnlyError, exceptions.ClusterDownError, exceptions.TryAgainError)
_TEMPORARY = (
    "LOADING",
    "READONLY",
    "MASTERDOWN",
    "CLUSTERDOWN",
    "TRYAGAIN",
    "NOREPLICAS",
    "MISCONF",
    "BUSY ",
    "UNBLOCKED",
)
DRIVERS_ERRORS = (exceptions.RedisError, exceptions.RedisClusterException, OSError)


@contextmanager
def translated() -> Generator[None]:
    """Raise the driver's errors as pgjq's errors."""
    try:
        yield
    except DRIVERS_ERRORS as error:
        raise translate(error) from error


def translate(error: Exception) -> PgjqError:
    """Return the pgjq error for an error of the driver."""
    text = str(error).strip() or "no answer in time"
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        return StorageError(f"Redis refused the command, check the credentials and the ACL: {text}")
    if "when used memory > 'maxmemory'" in text:
        return StorageError(
            "Redis is out of memory (maxmemory) and accepts no new jobs: raise maxmemory, or prune;"
            " stored jobs can still run"
        )
    if isinstance(error, exceptions.AskError):
        return StorageError("this server is part of a Redis Cluster: pass RedisStorage(client=redis.RedisCluster(…))")
    if not isinstance(error, exceptions.ResponseError) or is_wrong_server(error):
        return StorageUnavailableError(text)
    return StorageError(text)


def is_wrong_server(error: BaseException | None) -> bool:
    """Return whether the error says that the connected server cannot serve writes at present."""
    return isinstance(error, _TEMPORARY_ERRORS) or (
        isinstance(error, exceptions.ResponseError) and any(code in str(error) for code in _TEMPORARY)
    )
