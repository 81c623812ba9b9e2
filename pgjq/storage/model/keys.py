"""The jobs of a queue with a policy, by key: which slots are taken, and which job is next.

It has only the jobs that a policy counts: live jobs, and failed ones that still have their id. A key finds its next job
without reading the others, so that a thousand blocked jobs cost a claim nothing.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

from pgjq.job import LIVE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.job import State
    from pgjq.policy import Policy
    from pgjq.storage.model.record import Record


class KeyState:
    """The jobs of one key, by state and in the order of their runs, with stale entries."""

    __slots__ = ("by_state", "order")

    def __init__(self) -> None:
        self.by_state: defaultdict[State, dict[int, Record]] = defaultdict(dict)
        self.order: list[tuple[int, int]] = []


class Keys:
    """The keys of one queue."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.is_serial = policy.is_serial
        self._is_strict = policy.is_strict
        self._by_key: dict[str | None, KeyState] = {}
        self._indexed: dict[int, tuple[State, Record]] = {}

    def file(self, record: Record) -> None:
        """Index a job by its state."""
        if record.state not in LIVE and (record.state != "failed" or record.superseded):
            self.remove(record)
            return
        entry = self._by_key.setdefault(record.settings.singleton_key, KeyState())
        before, _ = self._indexed.get(record.seq, (None, None))
        if before is not None:
            del entry.by_state[before][record.seq]
        elif self._is_strict:
            heapq.heappush(entry.order, (0, record.seq))
        entry.by_state[record.state][record.seq] = record
        self._indexed[record.seq] = record.state, record

    def remove(self, record: Record) -> None:
        """Remove a job from the index."""
        state, _ = self._indexed.pop(record.seq, (None, None))
        if state is not None:
            key = record.settings.singleton_key
            entry = self._by_key[key]
            del entry.by_state[state][record.seq]
            if not any(entry.by_state.values()):
                del self._by_key[key]

    def make_ready(self, record: Record) -> None:
        """Add a due job to its key's order; in strict order it is there from the beginning."""
        if not self._is_strict:
            order = self._by_key[record.settings.singleton_key].order
            heapq.heappush(order, (-record.settings.priority, record.seq))

    def states(self, key: str | None) -> list[State]:
        """Return the states of a key's jobs."""
        entry = self._by_key.get(key)
        return [] if entry is None else [state for state, there in entry.by_state.items() if there]

    def others(self, record: Record) -> list[State]:
        """Return the states of the other jobs of a job's key."""
        entry = self._by_key.get(record.settings.singleton_key)
        if entry is None:
            return []
        return [state for state, there in entry.by_state.items() if len(there) > (record.seq in there)]

    def may_run(self, record: Record) -> bool:
        """Return whether the other jobs of its key allow a ready job to be claimed."""
        if self.policy.is_busy(self.others(record)):
            return False
        return not self._is_strict or self._first(self._by_key[record.settings.singleton_key]) is record

    def next_claimable(self, key: str | None) -> Record | None:
        """Return the next job of a key, if it can be claimed now."""
        entry = self._by_key.get(key)
        first = None if entry is None else self._first(entry)
        return first if first is not None and first.ready and self.may_run(first) else None

    def _first(self, entry: KeyState) -> Record | None:
        """Return the next job of a key; in strict order a failing one comes before all others."""
        if self._is_strict and entry.by_state["failing"]:
            return next(iter(entry.by_state["failing"].values()))
        while entry.order:
            rank, seq = entry.order[0]
            _, record = self._indexed.get(seq, (None, None))
            if record is not None and (self._is_strict or (record.ready and record.settings.priority == -rank)):
                return record
            heapq.heappop(entry.order)
        return None

    def blocked(self) -> Iterator[str | None]:
        """Iterate over the keys with failed jobs."""
        return (key for key, entry in self._by_key.items() if entry.by_state["failed"])
