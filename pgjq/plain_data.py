"""Convert values to plain data for JSON and MessagePack; `pgjq.convert` lists the types."""

from __future__ import annotations

import base64
import dataclasses
import types
from collections import deque
from collections.abc import Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from importlib import import_module
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Any,
    Final,
    cast,
    get_origin,
    is_typeddict,
)
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    Writer = Callable[[Any], Any]


def plain(value: Any) -> Any:
    """Return plain data for a value that the encoder lacks; TypeError if there is none."""
    for kind, write in _WRITERS.items():
        if isinstance(value, kind):
            return write(value)
    return _fields(value)


def typed(value: Any) -> Any:
    """Convert like `plain`, for values with a declared type: a set may become a list."""
    is_set = isinstance(value, set | frozenset)
    return sorted(cast("frozenset[Any]", value), key=repr) if is_set else plain(value)


def structured(value: Any) -> Any:
    """Convert like `typed` on every level, but for scalars, so that any serde can write it."""
    if type(value) in _ATOMS:
        return value
    if isinstance(value, Mapping):
        items = cast("Mapping[Any, Any]", value).items()
        return {key if type(key) in _ATOMS else plain(key): structured(item) for key, item in items}
    if isinstance(value, list | tuple | deque):
        return [structured(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, set | frozenset):
        return [structured(item) for item in typed(value)]
    return structured(_fields(value)) if has_fields(type(value)) else value


def check_kind(kind: Any, value: Any) -> None:
    """Refuse a value that is not of the declared class; other types are checked when read."""
    if isinstance(kind, type) and not is_typeddict(kind) and not isinstance(value, kind):
        raise TypeError(f"this must be a {type_name(kind)}, not a {type(value).__name__}")


def _fields(value: Any) -> Any:
    kind = cast("type[Any]", type(value))
    if is_pydantic(kind):
        return value.model_dump(mode="json")
    if is_msgspec(kind):
        return import_msgspec().to_builtins(value)
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if is_attrs(kind):
        return {field.name: getattr(value, field.name) for field in kind.__attrs_attrs__}
    raise TypeError(f"a {kind.__name__} cannot be written as data")


def is_pydantic(kind: Any) -> bool:
    """Return whether a class is a pydantic model."""
    return hasattr(kind, "model_validate") and hasattr(kind, "model_dump")


def is_msgspec(kind: Any) -> bool:
    """Return whether a class is a msgspec struct."""
    return hasattr(kind, "__struct_fields__")


def is_attrs(kind: Any) -> bool:
    """Return whether a class was made by attrs."""
    return hasattr(kind, "__attrs_attrs__")


def has_fields(kind: Any) -> bool:
    """Return whether a class declares fields in one of the ways that pgjq knows."""
    return is_pydantic(kind) or is_msgspec(kind) or dataclasses.is_dataclass(kind) or is_attrs(kind)


def import_msgspec() -> Any:
    """Return msgspec; a struct to convert exists, so it is installed."""
    return import_module("msgspec")


def type_name(kind: Any) -> str:
    """Return the name of a type for error messages."""
    return kind.__name__ if isinstance(kind, type) and get_origin(kind) is None else str(kind)


_WRITERS: Final[Mapping[type, Writer]] = types.MappingProxyType(
    {
        date: lambda day: day.isoformat(),  # A datetime is a date, too, and has its own entry.
        time: time.isoformat,
        timedelta: timedelta.total_seconds,
        UUID: str,
        Decimal: str,
        PurePath: str,
        bytes: lambda value: base64.b64encode(value).decode(),
        Enum: lambda member: member.value,
    }
)
_ATOMS: Final = frozenset((str, int, float, bool, type(None), bytes))
