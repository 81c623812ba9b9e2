"""The error of a `failed` event, which carries the payload for custom dead letter handling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.errors import JobFailedError, MaxRetriesError

if TYPE_CHECKING:
    from pgjq.job import JobError
    from pgjq.serde import Serde


def failure(
    job_id: str,
    error: JobError,
    *,
    attempts: int,
    max_attempts: int,
    payload: bytes,
    serde: Serde,
    cause: BaseException | None = None,
) -> JobFailedError:
    """Return the error of a permanently failed job: a MaxRetriesError when its attempts ran out.

    Its `original_error` and `__cause__` are the exception itself, if it was raised in this process.
    """
    message = f"job {job_id!r} failed: {error.type}: {error.message}"
    original = cause or error
    if attempts < max_attempts:
        failed = JobFailedError(message, original)
    else:
        failed = MaxRetriesError(message, original, payload=read(serde, payload), attempts=attempts)
    failed.__cause__ = cause
    return failed


def read(serde: Serde, data: bytes) -> Any:
    """Decode a value for an event; return the bytes themselves if they cannot be read."""
    try:
        return serde.deserialize(data)
    except Exception:  # noqa: BLE001
        return data
