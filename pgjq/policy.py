"""Policies: how many jobs of a key may be in which state, and in which order they run.

A job's key is its `singleton_key`; jobs without one share a key. `SLOTS` is the table of policies: every rule follows
from it, except that `key_strict_fifo` also keeps the order of a key. The rules are pure functions of the states of a
key's jobs: the memory storage calls them. PostgreSQL has the same table in `sql/schema/0001_policies.sql`, and tests
compare the two.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pgjq.job import State

PolicyName = Literal["standard", "short", "singleton", "stately", "exclusive", "key_strict_fifo"]
POLICIES: Final[tuple[PolicyName, ...]] = get_args(PolicyName)


class Policy(StrEnum):
    """A policy, in the order of the numbers that PostgreSQL keeps in a queue's number."""

    STANDARD = "standard"
    SHORT = "short"
    SINGLETON = "singleton"
    STATELY = "stately"
    EXCLUSIVE = "exclusive"
    KEY_STRICT_FIFO = "key_strict_fifo"

    @classmethod
    def of_queue(cls, queue_id: int) -> Policy:
        """Return the policy of a queue in PostgreSQL."""
        return cls(POLICIES[queue_id & 7])

    @property
    def number(self) -> int:
        """The number of the policy in PostgreSQL."""
        return POLICIES.index(self.value)

    def slot(self, state: State) -> str | None:
        """Return the slot of its key that a job in a state takes; None: the number is not limited."""
        return SLOTS[self].get(state)

    @property
    def limits_keys(self) -> bool:
        """Whether the number of a key's jobs is limited in any state."""
        return bool(SLOTS[self])

    @property
    def limits_queued(self) -> bool:
        """Whether another job of the key can keep a job from being enqueued or retried."""
        return self.slot("queued") is not None

    @property
    def is_serial(self) -> bool:
        """Whether one job of a key runs at a time, and further ones are blocked meanwhile."""
        return self.slot("processing") is not None and self.slot("processing") != self.slot("queued")

    @property
    def may_lack_slot(self) -> bool:
        """Whether a released job may find its slot taken by a job that was enqueued meanwhile."""
        return self.limits_queued and self.slot("processing") != self.slot("queued")

    @property
    def is_stately(self) -> bool:
        """Whether one job of a key may be failing, so that a second one fails for good."""
        return self is Policy.STATELY

    @property
    def is_strict(self) -> bool:
        """Whether a key's jobs run in order of creation, and a failed one blocks its key."""
        return self is Policy.KEY_STRICT_FIFO

    def refusal(self, siblings: Iterable[State]) -> State | None:
        """Return the state of the job that keeps another one of its key from being queued, if any."""
        wanted = self.slot("queued")
        return None if wanted is None else next((state for state in siblings if self.slot(state) == wanted), None)

    def is_busy(self, siblings: Iterable[State]) -> bool:
        """Return whether other jobs of a key block all its queued ones, whatever their order."""
        blocking = {"processing", "failing", "failed"} if self.is_strict else {"processing"}
        return self.is_serial and any(state in blocking for state in siblings)

    def state_after_release(self, state: State, siblings: Iterable[State]) -> State:
        """Return the state of a job released to `state`; without a free slot: failing, else failed."""
        taken = {self.slot(sibling) for sibling in siblings} - {None}
        if state == "queued" and self.slot("queued") in taken:
            state = "failing"
        return "failed" if self.is_stately and state == "failing" and "failing" in taken else state


# The slots of a key: at most one of its jobs has each. A state that is not listed is not limited.
SLOTS: Final[Mapping[Policy, Mapping[State, str]]] = {
    Policy.STANDARD: {},
    Policy.SHORT: {"queued": "queued"},
    Policy.SINGLETON: {"processing": "processing"},
    Policy.STATELY: {"queued": "queued", "processing": "processing", "failing": "failing"},
    Policy.EXCLUSIVE: {"queued": "live", "processing": "live", "failing": "live"},
    Policy.KEY_STRICT_FIFO: {"processing": "first", "failing": "first"},
}
