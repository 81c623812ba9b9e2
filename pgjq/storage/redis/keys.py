"""The names of everything that a storage keeps in Redis.

All of it begins with `{prefix:queue}`, a hash tag: a cluster keeps the keys of one queue together. In the names of
queues `%`, `{`, `}` and `:` are written as `%25` and so on, in prefixes the first three are; so what is before the last
colon is the prefix, what is after it is the queue, and no two can be mistaken for each other. A queue's name is never
empty; what belongs to the whole prefix uses that place.
"""

from __future__ import annotations

import functools
from typing import Final

from pgjq.errors import ValidationError

# In the order of the scripts' KEYS. One holds numbers and flags, then by a job's number (`seq`) its record and payload,
# then who has which id, every job by its number, and so on: `lua/prelude.lua` uses them all.
OF_A_QUEUE: Final = (
    "meta",
    "jobs",
    "payloads",
    "ids",
    "order",
    "ready",
    "waiting",
    "queued",
    "processing",
    "failing",
    "checkpoints",
    "outcomes",
    "expiring",
    "prunable",
)
_PREFIX: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_QUEUE: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", ":": "%3A"})
_CACHED: Final = 1024


class Keys:
    """The names below one prefix."""

    def __init__(self, prefix: str) -> None:
        if not isinstance(prefix, str) or not prefix:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValidationError(f"prefix must be a str that is not empty, not {prefix!r}")
        self._prefix = prefix.translate(_PREFIX)
        common = f"{{{self._prefix}:}}"
        self.queues = f"{common}:queues"
        self.workers = (f"{common}:workers", self.queues)
        self.events = f"{common}:events"
        self.wake = f"{common}:wake"
        self.answers = f"{common}:answers"
        self._office = f"{common}:leader:"
        self.of_queue = functools.lru_cache(_CACHED)(self._of_queue)

    def office(self, role: str) -> str:
        """Name the lock of a role."""
        return self._office + role

    def _of_queue(self, queue: str) -> tuple[bytes, ...]:
        tag = f"{{{self._prefix}:{queue.translate(_QUEUE)}}}"
        return tuple(f"{tag}:{kind}".encode() for kind in OF_A_QUEUE)
