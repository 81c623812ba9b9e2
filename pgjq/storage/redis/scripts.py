"""The Lua scripts in `lua/`, one per operation; each header states the guarantees."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_FOLDER: Final = Path(__file__).parent / "lua"
# The shared beginning, in this order: each file uses the functions of the files before it.
_COMMON: Final = ("request", "changes", "jobs", "replies")
# These work on keys of the whole prefix, not of a queue.
_WITHOUT_COMMON: Final = frozenset({"worker_seen", "workers", "elect", "resign"})


@dataclass(frozen=True, slots=True)
class Script:
    """A script, and the SHA that a server knows it by once it has received the source."""

    source: bytes
    sha: str


@functools.cache
def script(name: str) -> Script:
    """Read a script; the scripts of a queue begin with the files in `lua/common/`."""
    source = _read(name) if name in _WITHOUT_COMMON else _read_common() + _read(name)
    return Script(source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


def _read_common() -> bytes:
    return b"".join(_read(f"common/{name}") for name in _COMMON)


def _read(name: str) -> bytes:
    return (_FOLDER / f"{name}.lua").read_bytes()
