"""The Lua scripts, read from `lua/`, one for each operation; a header in each says what it guarantees."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "lua"
# These work on keys of the whole prefix, and not on a queue.
_ALONE: Final = frozenset({"worker_seen", "workers", "elect", "resign"})


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the name that a server knows it by once it has been sent there."""

    source: bytes
    sha: str


@functools.cache
def script(name: str) -> Script:
    """Read a script; a queue's begins with what they all share."""
    source = _read(name) if name in _ALONE else _read("prelude") + _read(name)
    return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


def _read(name: str) -> bytes:
    return (_FOLDER / f"{name}.lua").read_bytes()
