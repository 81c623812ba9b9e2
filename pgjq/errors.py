"""The errors that pgjq raises.

PgjqError
├── ValidationError (ValueError)      an argument is invalid; nothing was written
├── StorageError
│   ├── StorageUnavailableError       the server cannot be reached, or the connection broke; a retry may help
│   └── SchemaError                   the database's schema is missing, too old or too new for this code
├── UnsupportedError                  the storage does not support the operation
├── MissingExtraError (ImportError)   an optional dependency is not installed
├── QueueNotFoundError
├── PolicyError                       the queue's policy forbids it
├── JobNotFoundError
├── JobFailedError                    the awaited job failed
│   └── MaxRetriesError               … after its last attempt
├── JobCancelledError                 the awaited job was cancelled
├── LeaseLostError                    this run no longer owns the job
└── TimeoutError (builtin TimeoutError)

Storages raise these and no driver errors; the driver's error is always the `__cause__`.
"""

from __future__ import annotations

import builtins
from typing import Any


class PgjqError(Exception):
    """Base class of all errors that pgjq raises on purpose."""


class ValidationError(PgjqError, ValueError):
    """An argument is invalid. Raised before anything is written."""


class StorageError(PgjqError):
    """The storage could not perform the operation."""


def storage_closed() -> StorageError:
    """Return the error of an operation on a closed storage."""
    return StorageError("this storage has been closed")


class StorageUnavailableError(StorageError):
    """The storage cannot be reached now."""


class SchemaError(StorageError):
    """This code cannot use the schema in the database."""


class UnsupportedError(PgjqError):
    """The storage lacks this capability; `docs/storages.md` lists the storages that have it."""


class MissingExtraError(PgjqError, ImportError):
    """An optional dependency is missing; the message has the feature and the install command."""

    def __init__(self, extra: str, what: str = "this") -> None:
        super().__init__(f'{what} needs an optional part of pgjq: pip install "pgjq[{extra}]"')
        self.extra = extra


class QueueNotFoundError(PgjqError):
    """No queue of that name has been defined."""


class PolicyError(PgjqError):
    """The queue's policy forbids the change."""


class JobNotFoundError(PgjqError):
    """There is no job with that id, or its record has been pruned."""


class JobFailedError(PgjqError):
    """An awaited job failed; `original_error` is the reason."""

    def __init__(self, message: str, original_error: Any = None) -> None:
        super().__init__(message)
        self.original_error = original_error


class MaxRetriesError(JobFailedError):
    """A job failed on its last attempt; `payload` allows custom dead letter handling."""

    def __init__(self, message: str, original_error: Any = None, *, payload: Any = None, attempts: int = 0) -> None:
        super().__init__(message, original_error)
        self.payload = payload
        self.attempts = attempts


class JobCancelledError(PgjqError):
    """An awaited job was cancelled."""


class LeaseLostError(PgjqError):
    """The write used a lease that the job no longer has; it changed nothing."""


class TimeoutError(PgjqError, builtins.TimeoutError):
    """No result within the time-out. The job continues."""
