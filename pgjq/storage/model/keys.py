"""The jobs of a queue with a policy, by key: which places are taken, and whose turn it is.

Only jobs that a policy counts are here: those that live, and those that failed while their id still means them. A key
knows its next job without looking at the others, so that a thousand jobs behind a busy one cost a claim nothing.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from typing import TYPE_CHECKING

from pgjq.job import LIVE
from pgjq.policy import SERIAL, is_busy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.job import State
    from pgjq.policy import Policy
    from pgjq.storage.model.record import Record


class KeyState:
    """The jobs of one key: by state, and in the order in which they would run; who has left is passed over there."""

    __slots__ = ("by_state", "order")

    def __init__(self) -> None:
        self.by_state: defaultdict[State, dict[int, Record]] = defaultdict(dict)
        self.order: list[tuple[int, int]] = []


class Keys:
    """The keys of one queue."""

    def __init__(self, policy: Policy) -> None:
        self.policy: Policy = policy
        self.is_serial = policy in SERIAL
        self._is_strict = policy == "key_strict_fifo"
        self._lines: dict[str | None, KeyState] = {}
        self._filed: dict[int, tuple[State, Record]] = {}

    def file(self, record: Record) -> None:
        """Have a job where its state puts it."""
        if record.state not in LIVE and (record.state != "failed" or record.superseded):
            self.remove(record)
            return
        line = self._lines.setdefault(record.settings.singleton_key, KeyState())
        before, _ = self._filed.get(record.seq, (None, None))
        if before is not None:
            del line.by_state[before][record.seq]
        elif self._is_strict:
            heapq.heappush(line.order, (0, record.seq))
        line.by_state[record.state][record.seq] = record
        self._filed[record.seq] = record.state, record

    def remove(self, record: Record) -> None:
        """Have a job nowhere."""
        state, _ = self._filed.pop(record.seq, (None, None))
        if state is not None:
            key = record.settings.singleton_key
            line = self._lines[key]
            del line.by_state[state][record.seq]
            if not any(line.by_state.values()):
                del self._lines[key]

    def make_ready(self, record: Record) -> None:
        """Let a job whose time has come stand in line; in strict order it has stood there from the beginning."""
        if not self._is_strict:
            order = self._lines[record.settings.singleton_key].order
            heapq.heappush(order, (-record.settings.priority, record.seq))

    def states(self, key: str | None) -> list[State]:
        """Name the states that jobs of a key are in."""
        line = self._lines.get(key)
        return [] if line is None else [state for state, there in line.by_state.items() if there]

    def others(self, record: Record) -> list[State]:
        """Name the states that the other jobs of a job's key are in."""
        line = self._lines.get(record.settings.singleton_key)
        if line is None:
            return []
        return [state for state, there in line.by_state.items() if len(there) > (record.seq in there)]

    def may_run(self, record: Record) -> bool:
        """Say whether a ready job may be claimed, as far as the other jobs of its key go."""
        if is_busy(self.policy, self.others(record)):
            return False
        return not self._is_strict or self._first(self._lines[record.settings.singleton_key]) is record

    def turn(self, key: str | None) -> Record | None:
        """Tell which job of a key can be claimed next, if one can now."""
        line = self._lines.get(key)
        first = None if line is None else self._first(line)
        return first if first is not None and first.ready and self.may_run(first) else None

    def _first(self, line: KeyState) -> Record | None:
        """Tell who is first in line; in strict order that is, before all others, the one that has run already."""
        if self._is_strict and line.by_state["failing"]:
            return next(iter(line.by_state["failing"].values()))
        while line.order:
            _, record = self._filed.get(line.order[0][1], (None, None))
            if record is not None and (record.ready or self._is_strict):
                return record
            heapq.heappop(line.order)
        return None

    def blocked(self) -> Iterator[str | None]:
        """Name the keys with failed jobs."""
        return (key for key, line in self._lines.items() if line.by_state["failed"])
