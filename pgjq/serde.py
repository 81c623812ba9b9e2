"""How payloads and results become bytes.

A serde is any object with `serialize(value) -> bytes` and `deserialize(bytes) -> value`. `JsonSerde` is the default:
it writes compact UTF-8 and refuses what JSON cannot say (NaN among it), because a payload that another language
cannot read is a payload that is lost to it.
"""

from __future__ import annotations

import json
from typing import Any, Protocol

from pgjq.errors import ValidationError


class Serde(Protocol):
    """Turns values into bytes and back."""

    def serialize(self, value: Any) -> bytes:
        """Return the bytes that stand for `value`."""
        ...

    def deserialize(self, data: bytes) -> Any:
        """Return the value that `data` stands for."""
        ...


class JsonSerde:
    """Compact UTF-8 JSON."""

    _encode = staticmethod(
        json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), check_circular=True).encode
    )

    _decode = staticmethod(json.JSONDecoder().decode)

    def serialize(self, value: Any) -> bytes:
        """Encode; what JSON has no word for is a `TypeError` or `ValueError`."""
        return self._encode(value).encode()

    def deserialize(self, data: bytes) -> Any:
        """Decode; `json.loads` would look for other encodings first, and take twice as long."""
        return self._decode(data.decode())


def serialize_payload(serde: Serde, value: Any, job_id: str) -> bytes:
    """Serialise a payload; whatever the serde raises becomes a ValidationError that names the job."""
    try:
        data = serde.serialize(value)
    except Exception as error:
        message = f"the payload of job {job_id!r} cannot be serialised by {type(serde).__name__}: {error}"
        raise ValidationError(message) from error
    if type(data) is not bytes:
        message = f"{type(serde).__name__}.serialize returned {type(data).__name__}, not bytes"
        raise ValidationError(message)
    return data
