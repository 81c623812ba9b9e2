"""What redis-py raises, in pgjq's words. Nothing of the driver leaves the adapter but as a `__cause__`."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from redis import exceptions

from pgjq.errors import PgjqError, StorageError, StorageUnavailableError

if TYPE_CHECKING:
    from collections.abc import Generator

# Answers of a server that is not, or not yet, or no longer the one to ask. Redis 6.2 says so in the text of a script's
# error; newer servers answer with the word itself, which the driver may turn into a kind of error and take away.
_PASSING_KINDS = (exceptions.ReadOnlyError, exceptions.ClusterDownError, exceptions.TryAgainError)
_PASSING = (
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
    """Turn the driver's errors into pgjq's."""
    try:
        yield
    except DRIVERS_ERRORS as error:
        raise translate(error) from error


def translate(error: Exception) -> PgjqError:
    """Find pgjq's word for an error of the driver's."""
    text = str(error).strip() or "no answer in time"
    if isinstance(error, exceptions.AuthenticationError | exceptions.NoPermissionError):
        return StorageError(f"Redis does not let us in, or not do this: {text}")
    if "when used memory > 'maxmemory'" in text:
        return StorageError(
            "Redis is full (maxmemory) and takes no new jobs; what it holds can still be run. Give it memory, or prune"
        )
    if isinstance(error, exceptions.AskError):
        return StorageError("this server is one of a cluster: pass RedisStorage(client=redis.RedisCluster(…))")
    if not isinstance(error, exceptions.ResponseError) or has_moved(error):
        return StorageUnavailableError(text)
    return StorageError(text)


def has_moved(error: BaseException | None) -> bool:
    """Tell whether the server behind a connection is not, at present, the one that takes orders."""
    return isinstance(error, _PASSING_KINDS) or (
        isinstance(error, exceptions.ResponseError) and any(word in str(error) for word in _PASSING)
    )
