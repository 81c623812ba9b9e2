"""JSON text, written and read by the standard library's own C code with nothing in between.

`json.dumps` and `json.loads` set up an encoder for every value and look for blanks around every text. For the small
values of which a queue has millions that is more than half of the time. Whatever is unusual goes to the library's front
door, which knows what to say about it.
"""

from __future__ import annotations

import json
from json import encoder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def writer(default: Callable[[Any], Any]) -> Callable[[Any], str]:
    """Make a function that writes values compactly; `default` gives plain data for what JSON has no word for."""
    careful = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=default).encode
    make: Any = getattr(encoder, "c_make_encoder", None)
    quote: Any = getattr(encoder, "c_encode_basestring", None)
    if make is None or quote is None:
        return careful
    # No memory of containers on the way, no indent; keys are not sorted, not skipped; NaN is refused.
    encode = make(None, default, quote, None, ":", ",", False, False, False)

    def write(value: Any) -> str:
        try:
            return "".join(encode(value, 0))
        except RecursionError:
            return careful(value)  # It says that the value holds itself, if it does.

    return write


_decoder = json.JSONDecoder()


def read(text: str) -> Any:
    """Read a value; blanks around it are allowed, anything else is a `JSONDecodeError`."""
    try:
        value, end = _decoder.raw_decode(text)
    except json.JSONDecodeError:
        return _decoder.decode(text)
    return value if end == len(text) else _decoder.decode(text)
