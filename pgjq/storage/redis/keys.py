"""Names of the keys and channels that a storage uses in Redis.

* Every name begins with `{prefix:queue}`, a hash tag: a cluster keeps the keys of one queue together.
* In queue names `%`, `{`, `}` and `:` are percent-encoded, in prefixes the first three: the part before the last colon
  is the prefix, the part after it the queue, and no two pairs have the same name.
* A queue's name is never empty; names of the whole prefix have an empty queue.
"""

from __future__ import annotations

import functools
from typing import Final

from pgjq.errors import ValidationError

# In the order of the scripts' KEYS: counts and flags, the records and payloads by job number (`seq`), the job of each
# id, the jobs by number, and so on; see `lua/common/request.lua`.
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
    "attempts",
)
_PREFIX: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_QUEUE: Final = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D", ":": "%3A"})
_CACHED: Final = 1024


class Keys:
    """The key names of one prefix."""

    def __init__(self, prefix: str) -> None:
        if not isinstance(prefix, str) or not prefix:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValidationError(f"prefix must be a str that is not empty, not {prefix!r}")
        self._prefix = prefix.translate(_PREFIX)
        common = f"{{{self._prefix}:}}"
        self.queues = f"{common}:queues"
        self.workers = (f"{common}:workers", self.queues)
        self.events = f"{common}:events"
        self.wake = f"{common}:wake"
        self.results = f"{common}:results"
        self._office = f"{common}:leader:"
        self.of_queue = functools.lru_cache(_CACHED)(self._of_queue)

    def leader_key(self, role: str) -> str:
        """Return the key of a role's leader lock."""
        return self._office + role

    def _of_queue(self, queue: str) -> tuple[bytes, ...]:
        tag = f"{{{self._prefix}:{queue.translate(_QUEUE)}}}"
        return tuple(f"{tag}:{kind}".encode() for kind in OF_A_QUEUE)
