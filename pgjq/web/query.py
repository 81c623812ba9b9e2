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
    from collections.abc import Mapping

FIELDS: Final = ("queue", "state", "task", "id", "key", "worker", "error", "older", "newer")
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
        created_before=_moment(filled["older"], now) if "older" in filled else None,
        created_after=_moment(filled["newer"], now) if "newer" in filled else None,
    )


def is_empty(wanted: JobSearch) -> bool:
    """Whether a filter leaves nothing out."""
    return all(getattr(wanted, field.name) is None for field in fields(wanted))


def link(path: str, /, **params: Any) -> str:
    """Return a path with its query; parameters without a value are left out."""
    said = {name: str(value) for name, value in params.items() if value is not None and value != ""}
    return f"{path}?{urlencode(said)}" if said else path


def _moment(text: str, now: datetime) -> datetime:
    if (found := _AGE.fullmatch(text.strip())) is not None:
        return now - timedelta(seconds=min(float(found[1]) * _SECONDS[found[2]], LONGEST))
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise ValidationError(f"an age is written 90s, 15m, 2h, 7d or as a time, not {text!r}") from error
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)
