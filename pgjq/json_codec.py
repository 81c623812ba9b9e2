"""Read and write JSON with the standard library, quickly for small values.

`json.dumps` makes an encoder for every value and `json.loads` looks for blanks around every text. For small values, of
which a queue has millions, that is more than half of the time. Here encoder and decoder are made once; rare values go
to the functions of the library that raise its error messages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable

_STRICT: Final[dict[str, Any]] = {"ensure_ascii": False, "allow_nan": False, "separators": (",", ":")}
_decoder = json.JSONDecoder()


def writer(default: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Return a compact encoder; `default` converts values that JSON lacks to plain data."""
    encode = json.JSONEncoder(**_STRICT, default=default, check_circular=False).encode
    check = json.JSONEncoder(**_STRICT, default=default).encode

    def write(value: Any) -> str:
        if value is None:  # The result of most handlers.
            return "null"
        try:
            return encode(value)
        except RecursionError:
            return check(value)  # Raises the proper error for a value that contains itself.

    return write


def read(text: str) -> Any:
    """Read a value; blanks around it are allowed, other text around it is a `JSONDecodeError`."""
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError:
        return _decoder.decode(text)
    return value if end == len(text) else _decoder.decode(text)
