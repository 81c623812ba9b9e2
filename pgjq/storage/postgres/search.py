"""Search for jobs in PostgreSQL, for the web page.

A search walks the index that fits the filter (`_indexes_to_walk`), a batch of candidates at a time, and describes the
candidates that match, until the page is full or its time is over. The cursor of the next page is the walk and the place
in it where this page ended.
"""

from __future__ import annotations

import time
from math import inf
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pgjq.storage.inspection import JobSearch, SearchPage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.storage.inspection import FoundJob
    from pgjq.storage.postgres.inspection import PostgresInspection

BATCH: Final = 500  # Candidates of one step of a search.
SEARCH_SECONDS: Final = 0.1
# Transactions that enqueue side by side commit numbers and times in slightly different orders.
SLACK: Final = 1000
SMALL: Final = 2000  # A queue of so few jobs is searched whole.


class Candidate(NamedTuple):
    """A job that a walk found."""

    queue_id: int | None  # None: of another queue than the one that is wanted.
    seq: int
    mark: str | None


class Search:
    """One search: walks, one after the other, until the page is full."""

    def __init__(self, inspection: PostgresInspection, wanted: JobSearch, queue_id: int | None, limit: int) -> None:
        self._inspection = inspection
        self._wanted = wanted
        self._queue_id = queue_id
        self._limit = limit
        self._until = time.monotonic() + SEARCH_SECONDS
        self._found: list[FoundJob] = []
        self._looked_at = 0

    async def page(self, after: str | None) -> SearchPage:
        """Return the page after a cursor, which is the number of a walk and a mark."""
        stage, _, mark = (after or "").partition(":")
        if stage in ("", "small") and (whole := await self._small_queue(mark)) is not None:
            return whole
        walks = _indexes_to_walk(self._wanted)
        order = ORDERS.get(walks[0], "newest first")
        first = min(int(stage), len(walks) - 1) if stage.isdecimal() else 0
        for number, walk in enumerate(walks[first:], first):
            stopped = await self._walk(walk, mark or None)
            if stopped is not None:
                return SearchPage(self._found, f"{number}:{stopped}", self._looked_at, order)
            mark = ""
        return SearchPage(self._found, None, self._looked_at, order)

    async def _small_queue(self, mark: str) -> SearchPage | None:
        """Search all jobs of a small queue, the newest first; None if the queue has many."""
        if self._queue_id is None or self._wanted.id is not None:
            return None
        found = await self._inspection.candidates("queue", self._queue_id, {"limit": SMALL + 1})
        if len(found) > SMALL:
            return None
        before = int(mark) if mark.isdecimal() else inf
        ordered = [c._replace(mark=str(c.seq)) for c in sorted(found, key=lambda c: -c.seq) if c.seq < before]
        stopped = self._take(ordered, await self._inspection.describe(ordered, self._wanted))
        return SearchPage(self._found, None if stopped is None else f"small:{stopped}", len(found))

    async def _walk(self, walk: str, mark: str | None) -> str | None:
        """Walk until the page is full or time is over; return where, or None at the end."""
        by_age = walk in ("recent", "live")
        if by_age and mark is None and self._wanted.created_before is not None:
            mark = str(await self._inspection.seq_at(self._wanted.created_before))
        floor = await self._inspection.seq_at(self._wanted.created_after) - SLACK if by_age else 0
        while True:
            params: dict[str, Any] = {"id": self._wanted.id} if walk == "id" else {"mark": mark}
            if walk in ("ended", "failed"):
                params |= {"ended_after": self._wanted.ended_after, "ended_before": self._wanted.ended_before}
            found = await self._inspection.candidates(walk, self._queue_id, {"limit": BATCH, **params})
            self._looked_at += len(found)
            stopped = self._take(found, await self._inspection.describe(found, self._wanted))
            if stopped is not None:
                return stopped
            if len(found) < BATCH or (by_age and found[-1].seq < floor):
                return None
            mark = found[-1].mark
            if time.monotonic() > self._until:
                return mark

    def _take(self, candidates: Sequence[Candidate], matching: Sequence[tuple[int, FoundJob]]) -> str | None:
        """Add what matches; return the mark of the last job that was taken if there are more."""
        room = self._limit - len(self._found)
        self._found += [job for _, job in matching[:room]]
        if len(matching) <= room:
            return None
        return next(candidate.mark for candidate in candidates if candidate.seq == matching[room - 1][0])


ORDERS: Final = {
    "ready": "next to run first",
    "processing": "first deadline first",
    "failing": "next to run first",
    "failed": "latest failure first",
    "ended": "latest end first",
}


def _indexes_to_walk(wanted: JobSearch) -> tuple[str, ...]:
    """Return the indexes to walk, the first of which gives the order."""
    by_end = wanted.ended_after is not None or wanted.ended_before is not None
    match wanted.state:
        case _ if wanted.id is not None:
            return ("id",)
        case "failed":
            return ("failed",)
        case "processing" | "failing" as state if not by_end:
            return (state,)
        case "queued" if not by_end:
            return ("live",) if wanted.queue is None else ("ready", "waiting", "blocked")
        case None if wanted.error is not None and not by_end:
            return ("failed", "failing")
        case _:
            return ("ended",) if by_end else ("recent",)
