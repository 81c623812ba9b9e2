"""Keep passwords out of messages about URLs and connection strings.

An unreadable value may be mostly a password, in any position: `postgres//me:secret@host`, a password with a slash or a
space in it. So a message never repeats a value. Drivers do, in quotes: `redact` removes those, except for the name of a
parameter that clearly is one. The driver's exception is not chained either: tracebacks and error trackers show it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeVar

from pgjq.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R")

HIDDEN: Final = "…"
# Punctuation that a driver expected, or everything from the first quote to the last: a value may contain quotes.
_QUOTED: Final = re.compile(r"""("[=:/\[\]]")|["'].*["']""", re.DOTALL)
_NAME: Final = re.compile(r"[A-Za-z_]\w{0,62}")
_SCHEME: Final = re.compile(r"([A-Za-z][\w+.-]{0,30})://|(memory|embedded):")
# A URL whose parts are unambiguous, up to its query.
_WHOLE: Final = re.compile(r"[\w+.-]+://(?:[^/?#@]*@)?(?:\[[\w:.]*\]|[\w.,-]*)(?::\d+)?(?:/[^?#@]*)?\?")


def redact(message: str, source: str) -> str:
    """Return a driver's message about a URL or connection string without the values in it."""
    said = _QUOTED.sub(lambda quoted: _redacted(quoted[0], source), message.strip())
    return said if len(source) < 4 or source not in said else HIDDEN  # noqa: PLR2004


def scheme_of(url: str) -> str:
    """Return the scheme of a URL for messages; text without one may be a secret and is hidden."""
    found = _SCHEME.match(url)
    return found[1] or found[2] if found else HIDDEN


def read_redacted(read: Callable[[], R], source: str, what: str, *errors: type[Exception]) -> R:
    """Read a URL or connection string; its errors become a ValidationError without the values."""
    try:
        return read()
    except errors as error:
        said = redact(str(error), source)
    raise ValidationError(f"{what}: {said}")


def _redacted(quoted: str, source: str) -> str:
    return quoted if quoted[1:-1] in "=:/[]" or _is_parameter(quoted[1:-1], source) else HIDDEN


def _is_parameter(name: str, source: str) -> bool:
    """Return whether a name certainly is a parameter's: no text next to it can be a password."""
    if not _NAME.fullmatch(name):
        return False
    found = re.search(rf"(?:[?&]|^|\s){name}=[^\s=]", source)
    if found is None or "@" in source[found.start() :] or "password" in source[: found.start()]:
        return False
    return "://" not in source or _WHOLE.match(source) is not None
