"""Read and write JSON with the standard library's C code, without its per-call overhead.

`json.dumps` and `json.loads` set up an encoder for every value and look for blanks around every text. For small values,
of which a queue has millions, that is more than half of the time. Unusual values go to the library's public functions,
which raise its error messages.
"""

from __future__ import annotations

import json
from json import encoder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def writer(default: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Return a compact encoder; `default` converts values that JSON lacks to plain data."""
    careful = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default).encode
    make: Any = getattr(encoder, "c_make_encoder", None)
    quote: Any = getattr(encoder, "c_encode_basestring", None)
    if make is None or quote is None:
        return careful
    # No check for circular references, no indent; keys neither sorted nor skipped; NaN refused.
    encode = make(None, default, quote, None, ":", ",", False, False, False)

    def write(value: Any) -> str:
        try:
            return "".join(encode(value, 0))
        except RecursionError:
            return careful(value)  # Raises the proper error for a value that contains itself.

    return write


_decoder = json.JSONDecoder()


def read(text: str) -> Any:
    """Read a value; blanks around it are allowed, other text around it is a `JSONDecodeError`."""
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError:
        return _decoder.decode(text)
    return value if end == len(text) else _decoder.decode(text)
