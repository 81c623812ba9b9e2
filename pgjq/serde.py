"""Serdes: how payloads and results become bytes.

A serde is any object with `serialize(value) -> bytes` and `deserialize(bytes) -> value`. `JsonSerde` is the default:
it writes compact UTF-8 and refuses values that JSON does not have, such as NaN, because other languages could not read
them. `MsgpackSerde` is smaller and keeps bytes as they are. `pgjq.convert` turns richer values, such as dataclasses,
into plain data; a serde with a type turns them back into that type.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Generic, Protocol, overload

from pgjq.convert import check_kind, plain, shaped, typed
from pgjq.errors import MissingExtraError, ValidationError
from pgjq.json_codec import read, writer
from pgjq.type_variables import Value


class Serde(Protocol[Value]):
    """Converts values to bytes and back."""

    def serialize(self, value: Value) -> bytes:
        """Return `value` as bytes."""
        ...

    def deserialize(self, data: bytes) -> Value:
        """Return the value of `data`."""
        ...


class JsonSerde(Generic[Value]):
    """Compact UTF-8 JSON; with a type (`JsonSerde(Order)`), `deserialize` returns that type.

    The type may be a dataclass, a pydantic or a msgspec model, or any annotation made of such: `list[Order]`,
    `Order | None`.
    """

    _write_plain = staticmethod(writer(plain))
    _write_typed = staticmethod(writer(typed))

    @overload
    def __init__(self: JsonSerde[Any]) -> None: ...
    @overload
    def __init__(self, kind: type[Value]) -> None: ...
    @overload
    def __init__(self: JsonSerde[Any], kind: Any) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        self._kind = kind
        self._write = self._write_plain if kind is Any else self._write_typed

    def serialize(self, value: Value) -> bytes:
        """Encode; a value that JSON lacks is a `TypeError` or `ValueError`."""
        if self._kind is not Any:
            check_kind(self._kind, value)
        return self._write(value).encode()

    def deserialize(self, data: bytes) -> Value:
        """Decode."""
        value = read(data.decode())
        return value if self._kind is Any else shaped(self._kind, value)


class MsgpackSerde(Generic[Value]):
    """MessagePack (extra `pgjq[msgpack]`); with a type, `deserialize` returns that type."""

    @overload
    def __init__(self: MsgpackSerde[Any]) -> None: ...
    @overload
    def __init__(self, kind: type[Value]) -> None: ...
    @overload
    def __init__(self: MsgpackSerde[Any], kind: Any) -> None: ...
    def __init__(self, kind: Any = Any) -> None:
        try:
            msgpack = import_module("msgpack")
        except ImportError as error:
            raise MissingExtraError("msgpack") from error
        self._kind = kind
        self._pack: Any = msgpack.packb
        self._unpack: Any = msgpack.unpackb

    def serialize(self, value: Value) -> bytes:
        """Encode; a value that MessagePack lacks is a `TypeError`, `ValueError` or `OverflowError`."""
        if self._kind is not Any:
            check_kind(self._kind, value)
        return self._pack(value, default=plain if self._kind is Any else typed)

    def deserialize(self, data: bytes) -> Value:
        """Decode; map keys may be of any type."""
        value = self._unpack(data, strict_map_key=False)
        return value if self._kind is Any else shaped(self._kind, value)


def serialize_payload(serde: Serde, value: Any, job_id: str) -> bytes:
    """Serialise a payload; an error of the serde becomes a ValidationError with the job's id."""
    return _serialize(serde, value, "payload", job_id)


def serialize_result(serde: Serde, value: Any, job_id: str) -> bytes:
    """Serialise a result; an error of the serde becomes a ValidationError with the job's id."""
    return _serialize(serde, value, "result", job_id)


def _serialize(serde: Serde, value: Any, what: str, job_id: str) -> bytes:
    try:
        data = serde.serialize(value)
    except Exception as error:
        message = f"the {what} of job {job_id!r} cannot be serialised by {type(serde).__name__}: {error}"
        raise ValidationError(message) from error
    if type(data) is not bytes:
        returned = f"{type(serde).__name__}.serialize returned {type(data).__name__}, not bytes"
        raise ValidationError(f"the {what} of job {job_id!r} cannot be serialised: {returned}")
    return data
