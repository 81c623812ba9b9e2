"""Click parameter types: durations, points in time, JSON."""

from __future__ import annotations

import json
import re
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from pgjq.cli.formatting import UNITS

if TYPE_CHECKING:
    from collections.abc import Callable

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhd]?)")
_LENGTHS: Final = {"": 1.0, **dict(UNITS)}
_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE)
_SIZES: Final = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


class Kind(click.ParamType):  # pyright: ignore[reportMissingTypeArgument]  (click 8.1 takes none)
    """A parameter type made from a parser; the parser's ValueError is the error message."""

    def __init__(self, name: str, read: Callable[[str], Any]) -> None:
        self.name = name
        self._read = read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._read(value) if isinstance(value, str) else value
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Parsed:
    """A value parsed from an argument: any JSON, also null."""

    def __init__(self, value: Any) -> None:
        self.value = value


def read_json(text: str) -> Any:
    """Read JSON; the ValueError has the cause and the position."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        where = f"column {error.colno}" if error.lineno == 1 else f"line {error.lineno}, column {error.colno}"
        raise ValueError(f"this is not JSON: {error.msg} at {where}") from error
    except RecursionError as error:
        raise ValueError("this JSON is nested too deeply") from error


def _refuse(constant: str) -> Any:
    raise ValueError(f"this is not JSON, which has no {constant}")


def _duration(text: str) -> float:
    if (written := _DURATION.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a duration: write seconds, or 90s, 15m, 2h, 7d")
    return float(written[1]) * _LENGTHS[written[2]]


def _size(text: str) -> int:
    if (written := _SIZE.fullmatch(text)) is None:
        raise ValueError(f"{text!r} is not a size: write bytes, or 512M, 2G")
    return int(float(written[1]) * _SIZES[written[2].upper()])


def _moment(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time: write it as 2026-01-31T09:30:00+01:00") from error
    if moment.utcoffset() is None:
        raise ValueError(f"{text!r} has no time zone: add an offset, as +01:00, or Z")
    return moment


def _json(text: str) -> Any:
    """Parse JSON, but leave `-` for the command, which reads standard input."""
    try:
        return text if text == "-" else Parsed(read_json(text))
    except ValueError as error:
        hint = "; text is quoted twice, as '\"hello\"'" if text[:1].isalpha() else ""
        raise ValueError(f"{error}{hint}") from error


def _argument(text: str) -> Any:
    """Read an argument of a task: JSON, else the text itself, unless it begins like JSON."""
    try:
        return Parsed(read_json(text))
    except ValueError:
        if text.lstrip()[:1] in ("[", "{", '"'):
            raise
        return Parsed(text)


def _keyword(text: str) -> tuple[str, Any]:
    name, sign, value = text.partition("=")
    if not sign or not name.isidentifier():
        raise ValueError(f"{text!r} is not a keyword argument: write NAME=VALUE, as copy=true")
    return name, _argument(value)


DURATION: Final = Kind("duration", _duration)
SIZE: Final = Kind("size", _size)
MOMENT: Final = Kind("time", _moment)
JSON: Final = Kind("json", _json)
ARGUMENT: Final = Kind("value", _argument)
KEYWORD: Final = Kind("name=value", _keyword)
TEXT_MAP: Final = Kind("json", read_json)
PORT: Final = click.IntRange(0, 65535)
