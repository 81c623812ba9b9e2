"""Format numbers, times and stored values for people; filters of the templates."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from collections.abc import Iterator

NOTHING: Final = "\N{EN DASH}"
MANY: Final = 10_000
SHOWN_BYTES: Final = 262_144
_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))
_INDENT: Final = "  "


class _Literal(str):
    """A number as it was written."""

    __slots__ = ()


def count(value: int | None) -> str:
    """Return a count with separators."""
    return NOTHING if value is None else f"{value:,}"


def at_most(value: int) -> str:
    """Return a count that ends at a limit."""
    return f"more than {MANY:,}" if value > MANY else f"{value:,}"


def duration(seconds: float | None) -> str:
    """Return a duration in a fitting unit."""
    if seconds is None:
        return NOTHING
    size, unit = next(((s, u) for s, u in _UNITS if abs(seconds) >= s), (0.001, "ms"))
    figure = seconds / size
    return f"{figure:.0f} {unit}" if abs(figure) >= 10 or unit == "ms" else f"{figure:.1f} {unit}"  # noqa: PLR2004


def ago(moment: datetime | None, now: datetime | None = None) -> Markup:
    """Return a time relative to now, with the exact one for the mouse and for programs."""
    if moment is None:
        return Markup("<span class=quiet>{}</span>").format(NOTHING)
    distance = ((now or datetime.now(UTC)) - moment).total_seconds()
    text = f"{duration(distance)} ago" if distance >= 0 else f"in {duration(-distance)}"
    exact = moment.astimezone(UTC)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        exact.isoformat(), f"{exact:%Y-%m-%d %H:%M:%S.%f} UTC", text
    )


def is_past(moment: datetime) -> bool:
    """Whether a time has passed."""
    return moment <= datetime.now(UTC)


def readable(data: bytes | None, size: int | None = None) -> dict[str, Any]:
    """Return how to show stored bytes: as JSON with exact numbers, as text, or as hexadecimal."""
    if data is None:
        return {"kind": "none", "text": "", "size": 0, "cut": False}
    whole = len(data) if size is None else size
    is_cut = whole > len(data)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"kind": "bytes", "text": data[:4096].hex(" ", 4), "size": whole, "cut": whole > 4096}  # noqa: PLR2004
    try:
        value = json.loads(text, parse_int=_Literal, parse_float=_Literal, parse_constant=_Literal)
        return {"kind": "JSON", "text": pretty(value), "size": whole, "cut": is_cut}
    except (ValueError, RecursionError):
        return {"kind": "text", "text": text, "size": whole, "cut": is_cut}


def pretty(value: Any) -> str:
    """Write JSON with indents; numbers stay as they were written."""
    return "".join(_pieces(value, ""))


def _pieces(value: Any, indent: str) -> Iterator[str]:
    inner = indent + _INDENT
    match value:
        case dict() if value:
            yield "{"
            for number, (key, item) in enumerate(value.items()):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType, reportUnknownMemberType]
                yield f"{',' if number else ''}\n{inner}{json.dumps(key, ensure_ascii=False)}: "
                yield from _pieces(item, inner)
            yield f"\n{indent}}}"
        case list() if value:
            yield "["
            for number, item in enumerate(value):  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
                yield f"{',' if number else ''}\n{inner}"
                yield from _pieces(item, inner)
            yield f"\n{indent}]"
        case _Literal():
            yield str(value)
        case _:
            yield json.dumps(value, ensure_ascii=False)


FILTERS: Final = {"count": count, "at_most": at_most, "duration": duration, "ago": ago, "is_past": is_past}
