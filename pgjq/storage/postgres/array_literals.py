"""PostgreSQL array literals.

Batches are sent as text literals: a Python list as an array parameter costs 11 µs of client time per job, a joined
literal 2.5 µs, and every driver can send text. The server parses them with the types that the statement names.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def numbers(values: Iterable[float | None]) -> str:
    """Write numbers, None as NULL."""
    return "{" + ",".join(["NULL" if v is None else repr(v) for v in values]) + "}"


def texts(values: Iterable[str | None]) -> str:
    """Write strings, None as NULL."""
    return "{" + ",".join(["NULL" if v is None else _quoted(v) for v in values]) + "}"


def blobs(values: Iterable[bytes | None]) -> str:
    """Write byte strings in hex, None as NULL."""
    return "{" + ",".join(["NULL" if v is None else f'"\\\\x{v.hex()}"' for v in values]) + "}"


def objects(values: Iterable[dict[str, Any] | None]) -> str:
    """Write JSON objects, None as NULL."""
    return texts(None if v is None else json.dumps(v) for v in values)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
