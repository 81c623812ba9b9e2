"""Checks of arguments, before anything is written, and the values that they become.

`pgjq/declared_options.py` has the options, and `pgjq/job_settings.py` resolves them into `Settings`.

Every public method converts its arguments to these values first, so that a bad one raises `ValidationError` and never
aborts a transaction in the caller's database. Durations are seconds or `timedelta`s and become `float` seconds. The
longest is a century, which in practice is unlimited, and the shortest above 0 is a microsecond, the resolution of every
storage's clock. The functions of `sql/functions` that producers call have the same bounds, so that no accepted job can
fail a later statement.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from pgjq.errors import ValidationError
from pgjq.job import STATES, TASK_LENGTH, State, is_task_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    Headers = Mapping[str, str]

LONGEST: Final = 100 * 365.25 * 86400.0
SHORTEST: Final = 0.000001
# A year inside the limits of Python's datetime, so that every time zone can represent them.
EARLIEST: Final = datetime.min.replace(year=2, tzinfo=UTC)
LATEST: Final = datetime.max.replace(year=9998, tzinfo=UTC)
SHORT_MAX: Final = 32767
ID_LENGTH: Final = 512
QUEUE_LENGTH: Final = 128
RESULT_TTL: Final = 3600.0
MAX_ATTEMPTS: Final = 3
HEADERS_COUNT: Final = 64
HEADERS_BYTES: Final = 8192
RETENTION_SECONDS: Final = 14 * 86400.0
DELETE_AFTER_SECONDS: Final = 7 * 86400.0

_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")

OnFailed = Literal["enqueue", "duplicate"]
ON_FAILED: Final[tuple[OnFailed, ...]] = get_args(OnFailed)


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options that a job keeps: its retries, and the limits of an attempt and of its record.

    None means "not set": the queue's definition applies, then the worker's policy or the default.
    """

    retry_delay: float | None = None
    retry_backoff: bool | None = None
    retry_delay_max: float | None = None
    expire_in_seconds: float | None = None
    heartbeat_seconds: float | None = None
    retention_seconds: float | None = None
    delete_after_seconds: float | None = None
    dead_letter: str | None = None

    def set_values(self) -> dict[str, Any]:
        """Return the options that were set."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) is not None}


NO_OPTIONS: Final = JobOptions()


@dataclass(frozen=True, slots=True)
class Settings:
    """The resolved options of an enqueue. Jobs of one batch usually share one object."""

    result_ttl: float = RESULT_TTL
    max_attempts: int | None = None
    priority: int = 0
    run_at: datetime | None = None
    delay: float = 0.0
    singleton_key: str | None = None
    on_failed: OnFailed = "enqueue"
    options: JobOptions = NO_OPTIONS
    singleton_seconds: float | None = None
    singleton_next_slot: bool = False
    backoff_by_default: bool = False  # Retry with backoff unless the job or the queue's definition says otherwise.


DEFAULT_SETTINGS: Final = Settings()


class Submission(NamedTuple):
    """One job to store. A tuple, because a batch makes a million of them."""

    id: str
    payload: bytes
    settings: Settings
    task: str | None = None
    headers: Headers | None = None


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Filter of `find`: at most `limit` jobs in the order of enqueueing, after position `after`."""

    queue: str | None = None
    state: State | None = None
    created_before: datetime | None = None
    created_after: datetime | None = None
    singleton_key: str | None = None
    task: str | None = None
    after: int = 0
    limit: int = 100


def check_id(job_id: Any) -> str:
    """Return the id if every storage can store it."""
    if type(job_id) is str and 0 < len(job_id) <= ID_LENGTH and "\0" not in job_id and _is_unicode(job_id):
        return job_id
    if not isinstance(job_id, str):
        raise ValidationError(f"a job's id must be a str, not {type(job_id).__name__}")
    if not job_id:
        raise ValidationError("a job's id must not be empty; pass None for a generated id")
    if len(job_id) > ID_LENGTH:
        raise ValidationError(f"a job's id must not be longer than {ID_LENGTH} characters; this one has {len(job_id)}")
    if "\0" in job_id:
        raise ValidationError("a job's id must not hold a NUL character")
    if not _is_unicode(job_id):
        raise ValidationError("a job's id must be valid Unicode; this one holds a lone surrogate")
    return str(job_id)


def check_queue(name: Any) -> str:
    """Return the queue's name if every storage can store it."""
    if not isinstance(name, str):
        raise ValidationError(f"a queue's name must be a str, not {type(name).__name__}")
    if not name or len(name) > QUEUE_LENGTH:
        raise ValidationError(f"a queue's name must have 1 to {QUEUE_LENGTH} characters; this one has {len(name)}")
    if _CONTROL.search(name) or not _is_unicode(name):
        raise ValidationError("a queue's name must not hold control characters or lone surrogates")
    return name


def check_state(state: Any) -> State:
    """Return the state if it is valid."""
    if state not in STATES:
        raise ValidationError(f"state must be one of {', '.join(STATES)}, not {state!r}")
    return state


def check_seconds(name: str, value: Any, *, above: float | None = None, at_least: float | None = None) -> float:
    """Return a duration, a finite number or a `timedelta`, as seconds within the bounds."""
    if isinstance(value, timedelta):
        value = value.total_seconds()
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValidationError(f"{name} must be a number of seconds or a timedelta, not {type(value).__name__}")
    if isinstance(value, int):  # It may exceed all floats; the comparison is exact.
        value = max(-LONGEST, min(value, LONGEST))
    if not math.isfinite(value):
        raise ValidationError(f"{name} must be finite, not {value}")
    if above is not None and value <= above:
        raise ValidationError(f"{name} must be more than {above:g}, not {value:g}")
    if at_least is not None and value < at_least:
        raise ValidationError(f"{name} must be at least {at_least:g}, not {value:g}")
    return min(max(float(value), SHORTEST), LONGEST) if value > 0 else float(value)


def check_datetime(name: str, value: Any) -> datetime:
    """Return a point in time, an aware `datetime`."""
    if not isinstance(value, datetime):
        raise ValidationError(f"{name} must be a datetime, not {type(value).__name__}")
    if value.utcoffset() is None:
        raise ValidationError(
            f"{name} must have a time zone: this datetime is naive (datetime.now(timezone.utc) is aware)"
        )
    try:
        return min(max(value.astimezone(UTC), EARLIEST), LATEST)
    except OverflowError:
        return EARLIEST if value.year < EARLIEST.year else LATEST


def check_int(name: str, value: Any, low: int, high: int = SHORT_MAX) -> int:
    """Return an integer between two bounds."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValidationError(f"{name} must be a whole number, not {type(value).__name__}")
    if not low <= value <= high:
        raise ValidationError(f"{name} must be between {low} and {high}, not {value}")
    return value


def check_bool(name: str, value: Any) -> bool:
    """Return True or False; refuse 1 and 1.0, which equal True but which a database rejects."""
    if not isinstance(value, bool):
        raise ValidationError(f"{name} must be True or False, not {value!r}")
    return value


def check_task(name: Any) -> str:
    """Return the name of a task if every storage can store it."""
    if not isinstance(name, str) or not is_task_name(name):
        raise ValidationError(
            f"a task's name must be a str of 1 to {TASK_LENGTH} characters without control characters, not {name!r:.80}"
        )
    return name


def check_headers(headers: Any) -> Headers | None:
    """Return a copy of a job's headers: bounded, text to text; None for an empty mapping."""
    try:
        copied: dict[Any, Any] = dict(headers)
    except (TypeError, ValueError) as error:
        raise ValidationError(f"headers must be a mapping of str to str, not {type(headers).__name__}") from error
    for name, value in copied.items():
        if not (isinstance(name, str) and isinstance(value, str)):
            raise ValidationError(f"headers must map str to str: {name!r:.80} is {value!r:.80}")
        if not name or "\0" in name or "\0" in value or not (_is_unicode(name) and _is_unicode(value)):
            raise ValidationError(
                f"header {name!r:.80} must not be empty, nor hold a NUL character or a lone surrogate"
            )
    size = sum(len(name.encode()) + len(value.encode()) for name, value in copied.items())
    if len(copied) > HEADERS_COUNT or size > HEADERS_BYTES:
        raise ValidationError(
            f"headers must have at most {HEADERS_COUNT} entries and {HEADERS_BYTES} bytes in all;"
            f" these have {len(copied)} and {size}"
        )
    return copied or None


def check_key(key: Any) -> str:
    """Return the singleton key if every storage can store it."""
    if not isinstance(key, str) or not 0 < len(key) <= ID_LENGTH or "\0" in key or not _is_unicode(key):
        raise ValidationError(f"singleton_key must be a str of 1 to {ID_LENGTH} characters without NUL")
    return key


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
