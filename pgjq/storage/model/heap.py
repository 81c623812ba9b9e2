"""A heap of jobs whose entries become stale when their jobs are claimed, changed or deleted.

A change of a job does not search the heap. A stale entry is dropped when it reaches the head, and all of them when
there are more than twice as many entries as records. So a heap cannot outgrow the jobs, and one without stale entries
is never rebuilt.
"""

from __future__ import annotations

import heapq
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sized

    from pgjq.storage.model.record import Record

Key = TypeVar("Key", bound=Any)

LEAST: Final = 1000


class Heap(Generic[Key]):
    """Jobs by a key and then by number; `find` returns an entry's job, None if it is stale."""

    __slots__ = ("_entries", "_find", "_records")

    def __init__(self, find: Callable[[Key, int], Record | None], records: Sized) -> None:
        self._entries: list[tuple[Key, int]] = []
        self._find = find
        self._records = records

    def __len__(self) -> int:
        return len(self._entries)

    def push(self, key: Key, seq: int) -> None:
        """Add a job; it may be added twice."""
        entries = self._entries
        heapq.heappush(entries, (key, seq))
        if len(entries) > 2 * len(self._records) + LEAST:
            self._drop_stale()

    def first(self) -> Record | None:
        """Return the first job. It stays first until a change makes its entry stale."""
        entries, find = self._entries, self._find
        while entries:
            key, seq = entries[0]
            record = find(key, seq)
            if record is not None:
                return record
            heapq.heappop(entries)
        return None

    def pop(self) -> Record | None:
        """Take the first job out."""
        entries, find = self._entries, self._find
        while entries:
            key, seq = heapq.heappop(entries)
            record = find(key, seq)
            if record is not None:
                return record
        return None

    def _drop_stale(self) -> None:
        self._entries = [entry for entry in set(self._entries) if self._find(*entry) is not None]
        heapq.heapify(self._entries)
