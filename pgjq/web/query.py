"""The filter of jobs in a URL, and back: what the fields of the jobs page mean."""

from __future__ import annotations

import re
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from pgjq.errors import ValidationError
from pgjq.job import STATES
from pgjq.storage.inspection import JobSearch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

FIELDS: Final = (
    "queue",
    "state",
    "task",
    "id",
    "key",
    "worker",
    "error",
    "older",
    "newer",
    "ended_after",
    "ended_before",
)
_AGE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)?")
_SECONDS: Final = {None: 1, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
LONGEST: Final = 10_000 * 86400


def given(params: Mapping[str, str]) -> dict[str, str]:
    """Return the fields of a filter that are filled in."""
    return {name: params[name] for name in FIELDS if params.get(name, "") != ""}


def search_of(filled: Mapping[str, str], now: datetime | None = None) -> JobSearch:
    """Read a filter. Ages such as `15m` or `2h` count back from now; exact times are ISO 8601."""
    now = now or datetime.now(UTC)
    state: Any = filled.get("state")
    if state is not None and state not in STATES:
        raise ValidationError(f"state must be one of {', '.join(STATES)}, not {state!r}")
    return JobSearch(
        queue=filled.get("queue"),
        state=state,
        task=filled.get("task"),
        id=filled.get("id"),
        key=filled.get("key"),
        worker=filled.get("worker"),
        error=filled.get("error"),
        created_before=_datetime(filled["older"], now) if "older" in filled else None,
        created_after=_datetime(filled["newer"], now) if "newer" in filled else None,
        ended_before=_datetime(filled["ended_before"], now) if "ended_before" in filled else None,
        ended_after=_datetime(filled["ended_after"], now) if "ended_after" in filled else None,
    )


def check_texts(values: Iterable[str]) -> None:
    """Refuse a character that PostgreSQL cannot store in a text."""
    if any("\0" in value for value in values):
        raise ValidationError("a text must not contain a NUL character")


def changes_of(form: Mapping[str, str], now: datetime | None = None) -> dict[str, Any]:
    """Read the fields that change a waiting job; an empty one changes nothing.

    `run_at` is `now`, a duration from now such as `15m`, or a time in ISO 8601, in UTC unless it says otherwise.
    """
    run_at, priority = form.get("run_at", "").strip(), form.get("priority", "").strip()
    changes: dict[str, Any] = {}
    if run_at:
        changes["run_at"] = _coming(run_at, now or datetime.now(UTC))
    if priority:
        try:
            changes["priority"] = int(priority)
        except ValueError as error:
            raise ValidationError(f"priority must be a whole number, not {priority!r}") from error
    return changes


def is_empty(wanted: JobSearch) -> bool:
    """Whether a filter leaves nothing out."""
    return all(getattr(wanted, field.name) is None for field in fields(wanted))


def link(path: str, /, **params: Any) -> str:
    """Return a path with its query; parameters without a value are left out."""
    said = {name: str(value) for name, value in params.items() if value is not None and value != ""}
    return f"{path}?{urlencode(said)}" if said else path


def _datetime(text: str, now: datetime) -> datetime:
    return _time(text) if (age := _seconds(text)) is None else now - age


def _coming(text: str, now: datetime) -> datetime:
    if text.lower() == "now":
        return now
    return _time(text) if (delay := _seconds(text)) is None else now + delay


def _seconds(text: str) -> timedelta | None:
    found = _AGE.fullmatch(text.strip())
    return None if found is None else timedelta(seconds=min(float(found[1]) * _SECONDS[found[2]], LONGEST))


def _time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValidationError(f"an age or delay is written 90s, 15m, 2h, 7d or as a time, not {text!r}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
