"""Where claims begin in each queue while dead index entries pile up at its head.

An old snapshot (a long transaction, `pg_dump`) keeps vacuum from removing the entries of claimed jobs, and every claim
from the head reads all of them. So a claim that read many remembers where it ended, and the next ones begin there.

Invariants
* A position never hides a job for longer than `LONGEST` seconds, or four times what a claim from the head takes if that
  is longer, and never for longer than `LIMIT`: then a claim begins at the head again. That concerns jobs before the
  position: of a higher priority, or with an older number, such as a retry.
* A claim that gets fewer jobs than it asked for has read the queue from its head: `pgjq.claim` continues there. So a
  worker never sleeps beside a job that a position hides.
* A queue without many dead entries has no position, and every claim begins at its head.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pgjq.storage.postgres import array_literals

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Entries read, beyond ten for each job taken, from which a position is worthwhile: reading as many takes about as long
# as the rest of a small claim.
MANY: Final = 1000
# Claims from the head take at most about a tenth of the time; up to a fifth if each takes over half a second, and more
# only if each takes over seven seconds.
TIMES: Final = 10
LONGEST: Final = 5.0
LONGEST_TIMES: Final = 4
LIMIT: Final = 30.0

_RANK, _SEQ, _WALKED = 4, 2, 16


class Position(NamedTuple):
    """The first job that a claim may take, and until when (monotonic) claims begin there."""

    rank: int
    seq: int
    until: float


class Begun(NamedTuple):
    """A claim that was sent: the positions that it begins at, as array literals, and when."""

    ranks: str | None
    seqs: str | None
    queues: Sequence[str]
    sent: float


class ClaimPositions:
    """The positions of one worker's claims, by queue; a lost update is harmless.

    One event loop or thread uses it at a time.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._known: dict[str, Position] = {}

    def begin(self, queues: Sequence[str]) -> Begun:
        """Return where to begin in each of these queues."""
        now = self._now()
        self._known = {queue: place for queue, place in self._known.items() if place.until > now}
        if not self._known:
            return Begun(None, None, queues, now)
        places = [self._known.get(queue) for queue in queues]
        return Begun(
            array_literals.numbers(None if place is None else place.rank for place in places),
            array_literals.numbers(None if place is None else place.seq for place in places),
            queues,
            now,
        )

    def end(self, begun: Begun, found: Sequence[Sequence[Any]], limit: int) -> None:
        """Record the rows that a claim returned."""
        if len(found) < limit:
            self._known.clear()
            return
        if not self._known and max(row[_WALKED] or 0 for row in found) <= MANY:
            return
        until = self._now() + _lifetime(self._now() - begun.sent)
        for queue in {row[0] for row in found if row[_WALKED] is not None}:
            rows = [row for row in found if row[0] == queue]
            rank, seq = max((row[_RANK], row[_SEQ]) for row in rows)
            known = self._known.get(queue)
            if known is not None:
                self._known[queue] = max(known, Position(rank, seq + 1, known.until))
            elif max(row[_WALKED] for row in rows) > MANY + 10 * len(rows):
                self._known[queue] = Position(rank, seq + 1, until)


def _lifetime(took: float) -> float:
    """Return how long a position counts, from how long the claim from the head took."""
    return min(TIMES * took, max(LONGEST, LONGEST_TIMES * took), LIMIT)
