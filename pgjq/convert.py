"""Conversion of types that JSON and MessagePack lack to plain data, and back.

| in Python | as data |
|---|---|
| `datetime`, `date`, `time` | ISO 8601 text, with the offset of an aware one: `"2026-01-31T09:30:00+01:00"` |
| `timedelta` | seconds, a number |
| `UUID`, `Decimal`, `Path` | text; a `Decimal` keeps its digits |
| `bytes` | base64 text; in MessagePack, bytes |
| an `Enum`'s member | its value |
| `set`, `frozenset` | a list if the declared type is a set; refused without a type |
| a dataclass, an attrs class, a pydantic or msgspec model | an object with its fields |
| a `NamedTuple` | a list of its fields |

`plain` converts one level and leaves the rest to the encoder; `structured` converts all levels. `shaped` reads data
as its type declares: text in a `datetime` field becomes a `datetime`. It converts nothing that the type does not
declare, and ignores fields that the type does not have, so that a newer producer does not stop an older worker.
"""

from __future__ import annotations

import base64
import dataclasses
import functools
import json
import types
from collections import deque
from collections.abc import Mapping, MutableSet, Sequence
from collections.abc import Set as AbstractSet
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path, PurePath
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)
from uuid import UUID

from pgjq.errors import ValidationError
from pgjq.plain_data import (
    check_kind,
    has_fields,
    import_msgspec,
    is_attrs,
    is_msgspec,
    is_pydantic,
    plain,
    structured,
    type_name,
    typed,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    Writer = Callable[[Any], Any]

__all__ = ["check_kind", "plain", "shaped", "structured", "typed"]


def shaped(kind: Any, data: Any, at: str = "it") -> Any:
    """Read data as a type declares; `at` is its location for error messages."""
    if kind in (Any, object) or isinstance(kind, TypeVar):
        return data
    origin = get_origin(kind)
    if origin is None:
        if hasattr(kind, "__value__"):  # The alias of a `type` statement.
            return shaped(kind.__value__, data, at)
        return _of_class(getattr(kind, "__supertype__", kind), data, at)
    if has_fields(origin):
        return _of_class(origin, data, at)
    read = _FORMS.get(origin, _collection)
    return read(kind, data, at)


def _annotated(kind: Any, data: Any, at: str) -> Any:
    return shaped(get_args(kind)[0], data, at)


def _literal(kind: Any, data: Any, at: str) -> Any:
    if any(type(word) is type(data) and word == data for word in get_args(kind)):
        return data
    raise _refusal(kind, data, at)


def _one_of(kind: Any, data: Any, at: str) -> Any:
    """Read as the first type that fits; a value that already has one of the types is kept."""
    for part in sorted(get_args(kind), key=lambda part: type(data) is not part):
        try:
            return shaped(part, data, at)
        except ValidationError:
            continue
    raise _refusal(kind, data, at)


def _collection(kind: Any, data: Any, at: str) -> Any:
    origin, parts = cast("type[Any]", get_origin(kind)), get_args(kind)
    if issubclass(origin, Mapping):
        return _mapping(kind, data, at)
    if not isinstance(data, list | tuple):
        raise _refusal(kind, data, at)
    items = cast("Sequence[Any]", data)
    if not issubclass(origin, tuple) or parts[-1:] == (...,):
        parts = parts[:1] * len(items)
    if len(parts) != len(items):
        raise _refusal(kind, data, at)
    read = [shaped(part, item, f"{at}[{n}]") for n, (part, item) in enumerate(zip(parts, items, strict=True))]
    return _COLLECTIONS.get(origin, list)(read)


def _mapping(kind: Any, data: Any, at: str) -> Any:
    if not isinstance(data, dict):
        raise _refusal(kind, data, at)
    key, value = get_args(kind)
    items = cast("dict[Any, Any]", data).items()
    return {_key(key, k, f"a key of {at}"): shaped(value, v, f"{at}[{k!r}]") for k, v in items}


def _key(kind: Any, data: Any, at: str) -> Any:
    """Read the key of an object; JSON writes every key as text, also a number."""
    try:
        return shaped(kind, data, at)
    except ValidationError:
        try:
            return shaped(kind, json.loads(data), at)
        except (TypeError, ValueError):  # A ValidationError is a ValueError, too.
            raise _refusal(kind, data, at) from None


def _of_class(kind: Any, data: Any, at: str) -> Any:
    if is_pydantic(kind) or is_msgspec(kind):
        return _of_model(kind, data, at)
    if dataclasses.is_dataclass(kind) or is_attrs(kind):
        return _of_dataclass(kind, data, at)
    if is_typeddict(kind):
        return _of_typeddict(kind, data, at)
    if hasattr(kind, "_fields") and isinstance(kind, type) and issubclass(kind, tuple):
        return _of_named_tuple(kind, data, at)
    try:
        return _scalar(kind, data)
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _refusal(kind, data, at) from error


def _scalar(kind: Any, data: Any) -> Any:
    kind = type(None) if kind is None else get_origin(kind) or kind
    if isinstance(data, kind) and (kind is bool or not isinstance(data, bool)):
        return data
    if isinstance(data, str) and kind in _PARSERS:
        return _PARSERS[kind](data)
    if type(data) in (int, float) and kind in _NUMBERS:
        return _NUMBERS[kind](data)
    if isinstance(data, list) and kind in _COLLECTIONS:
        return _COLLECTIONS[kind](data)
    if issubclass(kind, Enum):
        return kind(data)
    raise TypeError


def _of_dataclass(kind: Any, data: Any, at: str) -> Any:
    if not isinstance(data, dict):
        raise _refusal(kind, data, at)
    given = cast("dict[str, Any]", data)
    hints = _hints(kind)
    read = {
        parameter: shaped(hints.get(name, Any), given[name], f"{at}.{name}")
        for name, parameter in _parameters(kind)
        if name in given
    }
    try:
        return kind(**read)
    except (TypeError, ValueError) as error:  # A field without a default is missing, or its validator refuses it.
        raise ValidationError(f"{at} is not a valid {type_name(kind)}: {error}") from error


def _parameters(kind: Any) -> list[tuple[str, str]]:
    """Return the fields of a dataclass or an attrs class, and the parameters that set them."""
    if dataclasses.is_dataclass(kind):
        return [(field.name, field.name) for field in dataclasses.fields(kind) if field.init]
    fields: Sequence[Any] = kind.__attrs_attrs__
    return [(field.name, getattr(field, "alias", None) or field.name.lstrip("_")) for field in fields if field.init]


def _of_typeddict(kind: Any, data: Any, at: str) -> Any:
    if not isinstance(data, dict):
        raise _refusal(kind, data, at)
    given, hints = cast("dict[str, Any]", data), _hints(kind)
    missing = sorted(_required_keys(kind) - given.keys())
    if missing:
        raise ValidationError(f"{at} is not a valid {type_name(kind)}: {', '.join(missing)} is missing")
    return {name: shaped(hints.get(name, Any), item, f"{at}[{name!r}]") for name, item in given.items()}


@functools.cache
def _required_keys(kind: Any) -> frozenset[str]:
    """Return the required keys of a TypedDict, also where annotations are text."""
    marks = {name: get_origin(hint) for name, hint in get_type_hints(kind, include_extras=True).items()}
    required = {name for name, mark in marks.items() if mark is Required}
    return frozenset(required | {name for name in kind.__required_keys__ if marks[name] is not NotRequired})


def _of_named_tuple(kind: Any, data: Any, at: str) -> Any:
    hints = _hints(kind)
    if isinstance(data, dict):
        return _of_named_fields(kind, hints, cast("dict[str, Any]", data), at)
    if not isinstance(data, list | tuple):
        raise _refusal(kind, data, at)
    return _of_named_fields(kind, hints, dict(zip(kind._fields, cast("Sequence[Any]", data), strict=False)), at)


def _of_named_fields(kind: Any, hints: dict[str, Any], given: dict[str, Any], at: str) -> Any:
    names = [name for name in kind._fields if name in given]
    try:
        return kind(**{name: shaped(hints.get(name, Any), given[name], f"{at}.{name}") for name in names})
    except TypeError as error:
        raise ValidationError(f"{at} is not a valid {type_name(kind)}: {error}") from error


def _of_model(kind: Any, data: Any, at: str) -> Any:
    try:
        return kind.model_validate(data) if is_pydantic(kind) else import_msgspec().convert(data, kind)
    except ValueError as error:  # The errors of both libraries are ValueErrors.
        raise ValidationError(f"{at} is not a valid {type_name(kind)}: {error}") from error


@functools.cache
def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind)


def _refusal(kind: Any, data: Any, at: str) -> ValidationError:
    return ValidationError(f"{at} must be a {type_name(kind)}, not {data!r:.60}")


_PARSERS: Final[Mapping[Any, Writer]] = types.MappingProxyType(
    {
        datetime: datetime.fromisoformat,
        date: date.fromisoformat,
        time: time.fromisoformat,
        UUID: UUID,
        Decimal: Decimal,
        Path: Path,
        PurePath: PurePath,
        bytes: lambda text: base64.b64decode(text, validate=True),
    }
)
_NUMBERS: Final[Mapping[Any, Writer]] = types.MappingProxyType(
    {float: float, timedelta: lambda seconds: timedelta(seconds=seconds)}
)
_FORMS: Final[Mapping[Any, Callable[[Any, Any, str], Any]]] = types.MappingProxyType(
    {Annotated: _annotated, Literal: _literal, Union: _one_of, types.UnionType: _one_of}
)
_COLLECTIONS: Final[Mapping[Any, Writer]] = types.MappingProxyType(
    {tuple: tuple, set: set, frozenset: frozenset, AbstractSet: frozenset, MutableSet: set, deque: deque}
)
