"""Leading, as a candidate sees it.

Rules, and what each failure does
* A campaign asks the storage again and again: a follower every `acquire_retry_interval`, a leader every
  `renewal_interval`, which proves that it still leads.
* A proof that fails ends the office at once, here: by a no, or by an error.
* A proof is trusted for a little less than `lock_ttl`, counted from before it was asked for, while the storage counts
  from when it was asked. So a leader that gets no answer stops acting before another one can be elected.
* What the storage knows without asking, such as a connection that was closed, ends the office at once as well.
* The campaign may hang in a connection to a server that has vanished. Hence a watch beside it, which never talks to the
  storage, and tells of the loss when the trust is over; `is_leader` never waits for anybody.
* `stop` resigns at once.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Any

from pgjq.blocking import drive
from pgjq.errors import StorageError, ValidationError
from pgjq.options import check_seconds
from pgjq.worker.periodic_thread import LOOK_SECONDS, Loop

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.storage.base import Operations
    from pgjq.worker.fault_log import Activity

MARGIN = 0.1
GOODBYE_SECONDS = 2.0


@dataclass(frozen=True)
class LeaderElection:
    """Whether only one of several acts, and how soon another one takes over. Durations are seconds.

    After a crash a follower leads within `lock_ttl + acquire_retry_interval`; with PostgreSQL mostly at its next try.
    """

    enabled: bool = False
    lock_ttl: float = 30.0
    renewal_interval: float = 10.0
    acquire_retry_interval: float = 5.0

    def __post_init__(self) -> None:
        """Refuse numbers that cannot work together, and say which."""
        enabled: Any = self.enabled
        if not isinstance(enabled, bool):
            raise ValidationError(f"enabled must be True or False, not {enabled!r}")
        for name in ("lock_ttl", "renewal_interval", "acquire_retry_interval"):
            object.__setattr__(self, name, check_seconds(name, getattr(self, name), above=0))
        if self.lock_ttl <= self.renewal_interval:
            raise ValidationError(
                f"lock_ttl={self.lock_ttl:g} is not more than renewal_interval={self.renewal_interval:g}: "
                "the lock would lapse before it is renewed; renew at a third of lock_ttl"
            )

    @property
    def trusted(self) -> float:
        """How long a proof is trusted: longer than until the next renewal, shorter than the lock lasts."""
        return self.lock_ttl - min(self.lock_ttl * MARGIN, (self.lock_ttl - self.renewal_interval) / 2)


class Leadership:
    """One candidate for one role, with a campaign and a watch on threads of their own."""

    def __init__(
        self,
        ops: Operations,
        role: str,
        candidate: str,
        election: LeaderElection,
        *,
        acquired: Callable[[], None],
        lost: Callable[[], None],
        report: Activity,
    ) -> None:
        self._ops = ops
        self._role = role
        self._candidate = candidate
        self._election = election
        self._acquired = acquired
        self._lost = lost
        self._report = report
        self._changing = threading.RLock()
        self._trusted_until = -inf
        self._leading = False
        self._over = False
        self._campaign = Loop(f"pgjq {role} election", self._run_for_office, report)
        self._watch = Loop(f"pgjq {role} watch", self._look, report.beside("watching the leadership"))

    @property
    def is_leader(self) -> bool:
        """Whether this candidate can be sure to lead, now. If something casts a doubt on it, the campaign asks."""
        if not self._is_trusted():
            return False
        leads = drive(self._ops.leads(self._role, self._candidate))
        if not leads:
            self._campaign.nudge()
        return leads

    def start(self) -> None:
        """Begin the campaign."""
        self._watch.start()
        self._campaign.start()

    def stop(self) -> None:
        """End the campaign and resign."""
        self._over = True
        self._set(-inf)
        self._campaign.stop(timeout=0)
        self._resign()  # This ends the wait of a proof that has no answer.
        self._campaign.stop(timeout=GOODBYE_SECONDS)
        self._resign()  # The campaign may have won in between.
        self._watch.stop(timeout=GOODBYE_SECONDS)

    def _resign(self) -> None:
        try:
            drive(self._ops.resign(self._role, self._candidate))
        except StorageError as error:  # The office lapses by itself.
            self._report(error)

    def _is_trusted(self) -> bool:
        return time.monotonic() < self._trusted_until

    def _run_for_office(self) -> float:
        asked = time.monotonic()
        leads = False
        try:
            leads = drive(self._ops.elect(self._role, self._candidate, ttl=self._election.lock_ttl))
        finally:
            self._set(asked + self._election.trusted if leads else -inf)
        if not leads:
            return self._election.acquire_retry_interval
        return max(0.0, asked + self._election.renewal_interval - time.monotonic())

    def _look(self) -> float:
        """Tell of a loss that nobody else could tell of; return when to look again."""
        with self._changing:
            if self._leading and not self._is_trusted():
                self._set(-inf)
            return max(0.0, self._trusted_until - time.monotonic()) if self._leading else LOOK_SECONDS

    def _set(self, trusted_until: float) -> None:
        """Trust until then, and tell of what that changes; two threads tell of it in the order in which it happens."""
        with self._changing:
            self._trusted_until = -inf if self._over else trusted_until
            leads = self._is_trusted()
            if leads != self._leading:
                self._leading = leads
                (self._acquired if leads else self._lost)()
        self._watch.nudge()
