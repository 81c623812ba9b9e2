"""Format values for people; control characters in them cannot move a terminal's cursor."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pgjq.convert import plain
from pgjq.declared_options import QUEUE_OPTIONS
from pgjq.job import JobError, JobSource, QueueStats
from pgjq.option_kinds import Duration

if TYPE_CHECKING:
    from collections.abc import Callable

UNITS: Final = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0))
DURATIONS: Final = (
    *(name for name, option in QUEUE_OPTIONS.items() if isinstance(option.kind, Duration)),
    "oldest_ready_age",
)
NOTHING: Final = "-"


def printable(text: str) -> str:
    """Escape invisible characters, including line feeds."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def escape_lines(text: str) -> str:
    """Escape each line of a text, such as a traceback."""
    return "\n".join(printable(line.expandtabs()) for line in text.splitlines())


def one_line(text: str) -> str:
    """Put a text on one line."""
    return printable(" ".join(text.split()))


def many(count: int, what: str = "job") -> str:
    """Return a count with its noun."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def document(value: Any) -> str:
    """Return a value as JSON for programs: ASCII, so that no locale or terminal can corrupt it."""
    return json.dumps(value, default=plain)


def readable(value: Any) -> str:
    """Return a value as JSON for people: letters unescaped."""
    return printable(json.dumps(value, default=plain, ensure_ascii=False))


def shown(name: str, value: Any) -> str:
    """Return the value of a field for people: by its name, where that says more than its type."""
    if value is None or value == ():
        return NOTHING
    if name in _SPECIAL:
        return _SPECIAL[name](value)
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    return readable(value)


def duration(seconds: float) -> str:
    """Return seconds in the format of the options: 15m, 7d, 2.5s."""
    for unit, length in UNITS:
        if seconds >= length and seconds % length == 0:
            return f"{seconds / length:g}{unit}"
    return f"{seconds:.3g}s" if seconds < 10 else f"{seconds:.0f}s"  # noqa: PLR2004


def _escape(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode("ascii")


def _local(moment: datetime) -> str:
    return moment.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _source(source: JobSource) -> str:
    return printable(f"{source.queue} {source.id}, after {source.attempts} attempts")


def _sizes(stats: QueueStats) -> str:
    return ", ".join(f"{getattr(stats, state):,} {state}" for state in ("queued", "processing", "failed"))


_SPECIAL: Final[dict[str, Callable[[Any], str]]] = {
    **dict.fromkeys(DURATIONS, duration),
    "result": readable,
    "traceback": escape_lines,
}
_WRITERS: Final[tuple[tuple[type, Callable[[Any], str]], ...]] = (
    (bool, lambda value: "yes" if value else "no"),
    (int, "{:,}".format),
    (str, printable),
    (datetime, _local),
    (JobError, lambda error: one_line(f"{error.type}: {error.message}")),
    (JobSource, _source),
    (QueueStats, _sizes),
    (tuple, lambda names: printable(", ".join(names))),
)
