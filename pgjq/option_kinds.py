"""Kinds of option values: each checks a value, and describes its bounds for help and docs.

The command line, the Spark columns and the docs choose by kind how they read, store and print an option.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgjq.errors import ValidationError
from pgjq.options import (
    HEADERS_BYTES,
    HEADERS_COUNT,
    ID_LENGTH,
    QUEUE_LENGTH,
    SHORT_MAX,
    check_bool,
    check_datetime,
    check_headers,
    check_int,
    check_key,
    check_queue,
    check_seconds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Integer:
    """A whole number within bounds."""

    low: int
    high: int = SHORT_MAX

    def check(self, name: str, value: Any) -> int:
        """Return the number, or raise `ValidationError`."""
        if type(value) is int and self.low <= value <= self.high:
            return value
        return check_int(name, value, self.low, self.high)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return f"{self.low} to {self.high}"


@dataclass(frozen=True, slots=True)
class Duration:
    """A number of seconds, or a `timedelta`; becomes a `float`."""

    at_least: float | None = None
    above: float | None = None

    def check(self, name: str, value: Any) -> float:
        """Return the seconds, or raise `ValidationError`."""
        return check_seconds(name, value, above=self.above, at_least=self.at_least)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return f"at least {self.at_least:g}" if self.above is None else f"more than {self.above:g}"


@dataclass(frozen=True, slots=True)
class Moment:
    """An aware `datetime`."""

    def check(self, name: str, value: Any) -> datetime:
        """Return the time in UTC, or raise `ValidationError`."""
        return check_datetime(name, value)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return "the years 2 to 9998"


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or False."""

    def check(self, name: str, value: Any) -> bool:
        """Return the value, or raise `ValidationError`."""
        return check_bool(name, value)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return "`True` or `False`"


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    def check(self, name: str, value: Any) -> str:
        """Return the word, or raise `ValidationError`."""
        if value in self.words:
            return value
        if len(self.words) > 2:  # noqa: PLR2004
            raise ValidationError(f"{name} must be one of {', '.join(self.words)}, not {value!r}")
        wanted = " or ".join(f'"{word}"' for word in self.words)
        raise ValidationError(f"{name} must be {wanted}, not {value!r}")

    def bounds(self) -> str:
        """Return the bounds in words."""
        return ", ".join(f'`"{word}"`' for word in self.words)


@dataclass(frozen=True, slots=True)
class TextMap:
    """Text by name: the headers of a job."""

    def check(self, _name: str, value: Any) -> Mapping[str, str] | None:
        """Return the headers, or raise `ValidationError`."""
        return check_headers(value)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return f"{HEADERS_COUNT} entries and {HEADERS_BYTES} bytes at most"


@dataclass(frozen=True, slots=True)
class Key:
    """A `singleton_key`."""

    def check(self, _name: str, value: Any) -> str:
        """Return the key, or raise `ValidationError`."""
        return check_key(value)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return f"1 to {ID_LENGTH} characters"


@dataclass(frozen=True, slots=True)
class QueueName:
    """The name of a queue."""

    def check(self, _name: str, value: Any) -> str:
        """Return the name, or raise `ValidationError`."""
        return check_queue(value)

    def bounds(self) -> str:
        """Return the bounds in words."""
        return f"1 to {QUEUE_LENGTH} characters"


Kind = Integer | Duration | Moment | Boolean | Choice | TextMap | Key | QueueName
