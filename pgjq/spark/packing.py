"""Unpack several small numbers of a row from one word.

The cost of a field for the server and the driver hardly depends on whether it has two bytes or eight. So history has
words of 64 bits with three numbers each, and a batch of them is unpacked at once.
"""

from __future__ import annotations

from typing import Any, Final

from pgjq.spark.lazy_imports import np, pa

# The words of sql/queries/history.sql and their parts, from the last bits to the first.
_LANES: Final = {
    "place": [("stalled", "<i2"), ("state", "<i2"), ("queue", "<i4")],
    "effort": [("max_attempts", "<i2"), ("attempts", "<i2"), ("worker", "<i4")],
}
WORDS: Final = frozenset(_LANES)
WORD_OF: Final = {column: word for word, lanes in _LANES.items() for column, _ in lanes}


def take_apart(word: str, column: Any) -> dict[str, Any]:
    """Return the numbers of each column in a word. None of them is null."""
    rows = np.frombuffer(column.buffers()[1], _LANES[word], len(column), column.offset * 8)
    return {name: _numbers(rows[name]) for name in rows.dtype.names}


def _numbers(lane: Any) -> Any:
    # Arrow would accept it as it is, but import pandas to find out that it is no series.
    return pa.Array.from_buffers(pa.int32(), len(lane), [None, pa.py_buffer(lane.astype("=i4"))])
