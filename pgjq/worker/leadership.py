"""Client side of leader election.

Protocol, and what each failure does
* A candidate asks the storage repeatedly: a follower every `acquire_retry_interval`, a leader every
  `renewal_interval`, which proves that it still leads.
* A proof that fails, by a refusal or an error, ends the leadership in this process at once.
* The leader trusts a proof for a little less than `lock_ttl`, counted from before it asked; the storage counts from
  when it was asked. So a leader without a reply stops acting before another one can be elected.
* A fact that the storage knows without asking, such as a closed connection, ends the leadership at once as well.
* The campaign may hang in a connection to a server that has vanished. So a watch thread, which never uses the storage,
  publishes the loss when the trust ends; `is_leader` never blocks.
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
STOP_SECONDS = 2.0


@dataclass(frozen=True)
class LeaderElection:
    """Settings of an election: how soon another candidate takes over. Durations are seconds.

    After a crash a follower leads within `lock_ttl + acquire_retry_interval`; with PostgreSQL usually at its next try.
    """

    enabled: bool = False
    lock_ttl: float = 30.0
    renewal_interval: float = 10.0
    acquire_retry_interval: float = 5.0

    def __post_init__(self) -> None:
        """Refuse values that contradict each other, with an error that names them."""
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
        """How long a proof is trusted: past the next renewal, but shorter than the lock lasts."""
        return self.lock_ttl - min(self.lock_ttl * MARGIN, (self.lock_ttl - self.renewal_interval) / 2)


class Leadership:
    """One candidate for one role, with a campaign thread and a watch thread."""

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
        self._campaign = Loop(f"pgjq {role} election", self._try_election, report)
        self._watch = Loop(f"pgjq {role} watch", self._publish_loss, report.for_activity("watching the leadership"))

    @property
    def is_leader(self) -> bool:
        """Whether this candidate certainly leads now. In doubt, it makes the campaign ask."""
        if not self._is_trusted():
            return False
        leads = drive(self._ops.leads(self._role, self._candidate))
        if not leads:
            self._campaign.run_now()
        return leads

    def start(self) -> None:
        """Start the campaign."""
        self._watch.start()
        self._campaign.start()

    def stop(self) -> None:
        """End the campaign and resign."""
        self._over = True
        self._set(-inf)
        self._campaign.stop(timeout=0)
        self._resign()  # Ends the wait of a proof without a reply.
        self._campaign.stop(timeout=STOP_SECONDS)
        self._resign()  # The campaign may have won in between.
        self._watch.stop(timeout=STOP_SECONDS)

    def _resign(self) -> None:
        try:
            drive(self._ops.resign(self._role, self._candidate))
        except StorageError as error:  # The leadership expires by itself.
            self._report(error)

    def _is_trusted(self) -> bool:
        return time.monotonic() < self._trusted_until

    def _try_election(self) -> float:
        asked = time.monotonic()
        leads = False
        try:
            leads = drive(self._ops.elect(self._role, self._candidate, ttl=self._election.lock_ttl))
        finally:
            self._set(asked + self._election.trusted if leads else -inf)
        if not leads:
            return self._election.acquire_retry_interval
        return max(0.0, asked + self._election.renewal_interval - time.monotonic())

    def _publish_loss(self) -> float:
        """Publish a loss that the campaign could not; return when to check again."""
        with self._changing:
            if self._leading and not self._is_trusted():
                self._set(-inf)
            return max(0.0, self._trusted_until - time.monotonic()) if self._leading else LOOK_SECONDS

    def _set(self, trusted_until: float) -> None:
        """Trust until then and publish the change; two threads publish in the order of the changes."""
        with self._changing:
            self._trusted_until = -inf if self._over else trusted_until
            leads = self._is_trusted()
            if leads != self._leading:
                self._leading = leads
                (self._acquired if leads else self._lost)()
        self._watch.run_now()
