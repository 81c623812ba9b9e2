"""Every error a user can meet.

PgjqError
├── ValidationError (ValueError)      what was passed in cannot be used; nothing was written
├── StorageError
│   ├── StorageUnavailableError       the server cannot be reached, or went away; trying again may help
│   └── SchemaError                   the database's schema is missing, too old or too new for this code
├── UnsupportedError                  this storage does not promise that
├── MissingExtraError (ImportError)   an optional dependency is not installed
├── QueueNotFoundError
├── PolicyError                       the queue's policy forbids it
├── JobNotFoundError
├── JobFailedError                    the job that was waited for failed
│   └── MaxRetriesError               … after its last attempt
├── JobCancelledError                 the job that was waited for was withdrawn
├── LeaseLostError                    somebody else owns the job now
└── TimeoutError (builtin TimeoutError)

Adapters raise these and nothing of their drivers; the driver's own error is always the `__cause__`.
"""

from __future__ import annotations

import builtins
from typing import Any


class PgjqError(Exception):
    """The root of the tree: catch this to catch everything that pgjq raises on purpose."""


class ValidationError(PgjqError, ValueError):
    """An argument cannot be used as it is. Raised before anything was written."""


class StorageError(PgjqError):
    """The storage could not do what was asked of it."""


class StorageUnavailableError(StorageError):
    """The storage cannot be reached right now."""


class SchemaError(StorageError):
    """The schema in the database is not one that this code can use."""


class UnsupportedError(PgjqError):
    """The storage does not promise this ability; `docs/storages.md` lists which one does."""


class MissingExtraError(PgjqError, ImportError):
    """An optional dependency is missing; the message says what needs it and gives the command that installs it."""

    def __init__(self, extra: str, what: str = "this") -> None:
        super().__init__(f'{what} needs an optional part of pgjq: pip install "pgjq[{extra}]"')
        self.extra = extra


class QueueNotFoundError(PgjqError):
    """No queue of that name has been defined."""


class PolicyError(PgjqError):
    """The queue's policy does not allow the change."""


class JobNotFoundError(PgjqError):
    """There is no job of that id, or its record has been pruned."""


class JobFailedError(PgjqError):
    """A job that somebody waited for failed; `original_error` tells why."""

    def __init__(self, message: str, original_error: Any = None) -> None:
        super().__init__(message)
        self.original_error = original_error


class MaxRetriesError(JobFailedError):
    """A job failed on its last attempt; `payload` is there for a dead letter of one's own."""

    def __init__(self, message: str, original_error: Any = None, *, payload: Any = None, attempts: int = 0) -> None:
        super().__init__(message, original_error)
        self.payload = payload
        self.attempts = attempts


class JobCancelledError(PgjqError):
    """A job that somebody waited for was cancelled."""


class LeaseLostError(PgjqError):
    """The lease under which a write was made is no longer the job's; the write changed nothing."""


class TimeoutError(PgjqError, builtins.TimeoutError):
    """No answer in time. The job goes on."""
