"""One run of one job, from its claim until it is settled."""

from __future__ import annotations

import threading
import time
from types import MappingProxyType
from typing import TYPE_CHECKING

from pgjq.errors import TimeoutError
from pgjq.outcome import Outcome, decide, expire
from pgjq.worker.abort_signal import AbortSignal
from pgjq.worker.event_order import Gate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.options import Headers
    from pgjq.storage.base import Claimed, JobTransaction
    from pgjq.worker.handler import Consumer

    OnCommit = Callable[["Run", Outcome], None]

# The worker trusts a renewed lease for a little less than it lasts: by the time that a message may take. A lease that
# nothing renews is the time limit of the run, and the run gets all of it.
MARGIN = 0.1

# A run that has not started this long after its claim is released: another worker may have a free slot.
START_WITHIN = 1.0

# A lease that was not renewed because its row was locked is asked for again after a fourth of the interval, so that a
# short lock costs no lease; and not more often than a handler that renews its own lease asks.
ASK_AGAIN = 0.25
ASK_AGAIN_SECONDS = 0.05

# A transaction of a run is ended this long after the run is certainly over.
IDLE_MARGIN = 5.0

NO_HEADERS: Headers = MappingProxyType({})


def heartbeat_interval(job: Claimed, policy: LeasePolicy) -> float | None:
    """Return a job's heartbeat interval: half of its `heartbeat_seconds`, else the policy's.

    Without a lease the heartbeat renews nothing, but still finds cancel requests.
    """
    own = job.options.heartbeat_seconds
    return own / 2 if own is not None else policy.heartbeat


class Run:
    """A worker's state of one in-flight run, from the claim until it is settled.

    `trusted_until` is on this machine's monotonic clock and counts from before the claim or heartbeat was sent; the
    storage counts from when it arrived. So the worker always stops trusting a lease before it can expire.
    """

    __slots__ = (
        "_signal",
        "beat",
        "began",
        "behind",
        "claimed",
        "committed",
        "completing",
        "consumer",
        "ended",
        "expires",
        "gate",
        "held",
        "in_transaction",
        "job_transaction",
        "limits_idle",
        "next_beat",
        "published",
        "skipped",
        "start_by",
        "started",
        "target",
        "took",
        "trusted_until",
        "waits",
        "worker",
    )

    _deciding = threading.Lock()

    began: float | None  # When its handler was called.
    took: float | None  # Seconds that the handler took.
    trusted_until: float | None  # On the monotonic clock; None: no lease.
    completing: bool  # The handler's transaction locks the row and ends the run: nothing to renew.
    skipped: bool  # The last heartbeat did not renew the lease: another transaction had locked the row.
    gate: Gate | None  # For events that wait until the end of this run is published.
    held: list[Callable[[], None]] | None  # Events of this run that wait for earlier ones.
    behind: Gate | None  # Of the previous run, if its end was not published at the claim.
    waits: Sequence[Gate]  # All gates that this run's events wait for.

    def __init__(
        self, claimed: Claimed, consumer: Consumer, *, worker: str, sent: float, beat: float | None, committed: OnCommit
    ) -> None:
        self.claimed = claimed
        self.consumer = consumer
        self.target = consumer.targets.get(claimed.task, consumer.default)
        self.worker = worker
        self.committed = committed
        self.in_transaction = self.completing = self.ended = self.started = self.published = False
        self._signal: AbortSignal | None = None
        self.job_transaction: JobTransaction | None = None
        self.limits_idle = True
        self.beat, self.began, self.took = beat, None, None
        # Half of it may pass before the run starts; a run that waits longer is released, at no cost of an attempt.
        self.expires = None if claimed.expire_seconds is None else sent + claimed.expire_seconds / 2
        self.start_by = sent + START_WITHIN
        self.gate = self.held = self.behind = None
        self.waits = ()
        self.next_beat: float | None = None
        self.renewed(sent)

    @property
    def idle_limit(self) -> float | None:
        """How long a transaction of this run may be idle; None for no limit.

        A handler may compute for longer than its lease while heartbeats renew it: then only the expiry ends the run.
        """
        if not self.limits_idle:
            return None
        ends = (self.claimed.expire_seconds, self.claimed.lease_seconds if self.beat is None else None)
        return min((end + IDLE_MARGIN for end in ends if end is not None), default=None)

    @property
    def signal(self) -> AbortSignal:
        """The abort signal. Created on first use, on any thread; most runs never need it."""
        if self._signal is None:
            with AbortSignal.shared:
                self._signal = self._signal or AbortSignal()
        return self._signal

    @property
    def aborted(self) -> bool:
        """Whether the abort signal has been set."""
        return self._signal is not None and self._signal.aborted

    @property
    def abort_reason(self) -> str | None:
        """Why the abort signal was set, if it was."""
        return None if self._signal is None else self._signal.reason

    def make_gate(self) -> Gate:
        """Return this run's gate; created on first use, on any thread."""
        with self._deciding:
            self.gate = self.gate or Gate()
        return self.gate

    def renewed(self, sent: float) -> None:
        """Trust the lease from when its renewal was requested."""
        lease = self.claimed.lease_seconds
        margin = 0.0 if self.beat is None else MARGIN
        self.trusted_until = None if lease is None else sent + lease * (1 - margin)
        self.skipped = False
        if self.beat is not None:
            self.next_beat = sent + self.beat

    def skip(self, sent: float) -> None:
        """Ask for the lease again soon, with unchanged trust: a heartbeat found its row locked."""
        self.skipped = True
        if self.beat is not None:
            self.next_beat = sent + max(self.beat * ASK_AGAIN, min(self.beat, ASK_AGAIN_SECONDS))

    def start(self) -> bool:
        """Acquire the right to call the handler; False if the run is over or was given up."""
        with self._deciding:
            if self.ended or self.aborted:
                return False
            self.started = True
        self.began = time.monotonic()
        if self.expires is not None and self.claimed.expire_seconds is not None:
            self.expires += self.claimed.expire_seconds / 2
        return True

    def measure(self) -> float:
        """Return how many seconds the handler took, and keep them."""
        took = self.took = time.monotonic() - (self.began or 0.0)
        return took

    def give_up(self) -> bool:
        """End a run whose handler was not called; False if it was called or the run has ended.

        Of this and `start` only one succeeds. This also acquires the right to end the run, as `end` does.
        """
        with self._deciding:
            return not self.started and self.end()

    def is_over(self) -> bool:
        """Return whether this run must not start: it has ended, or its lease is not trusted."""
        late = self.trusted_until is not None and self.trusted_until <= time.monotonic()
        return self.ended or self.aborted or late

    def may_be_settled(self) -> bool:
        """Return whether the storage may still accept this run's outcome: its lease is trusted."""
        return self.trusted_until is None or self.trusted_until > time.monotonic()

    def decide(self, error: BaseException, chance: float) -> Outcome:
        """Return a failed run's outcome: by its target's rule, else by the job's retry policy."""
        claimed = self.claimed
        if self.target.decide is not None and (outcome := self.target.decide(error, claimed)) is not None:
            return outcome
        return decide(
            error,
            attempts=claimed.attempts,
            max_attempts=claimed.max_attempts,
            options=claimed.options,
            chance=chance,
        )

    def expire(self) -> Outcome:
        """Return the outcome of this run if it took too long."""
        late = TimeoutError(f"the attempt took longer than {self.claimed.expire_seconds:g} s")
        return expire(self.decide(late, 0.5))

    def end(self) -> bool:
        """Acquire the right to end this run: only the first caller gets it."""
        if self.ended:
            return False
        self.ended = True
        return True
