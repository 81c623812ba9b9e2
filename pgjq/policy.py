"""Policies: how many jobs of a key may be in which state, and in which order they run.

A job's key is its `singleton_key`; jobs without one share a key. The rules are pure functions of the states of a key's
jobs: the memory storage calls them, and PostgreSQL's decision by an index (`pgjq.policy_slot` in SQL) is tested against
them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.job import State

Policy = Literal["standard", "short", "singleton", "stately", "exclusive", "key_strict_fifo"]

# In the order of their numbers, which PostgreSQL keeps in the last bits of a queue's number.
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)

# Policies that run one job of a key at a time.
SERIAL: Final[frozenset[Policy]] = frozenset(("singleton", "stately", "key_strict_fifo"))


def place(policy: Policy, state: State) -> str | None:
    """Return the slot that a job in a state takes of its key; None: the number is not limited."""
    match policy, state:
        case ("short", "queued") | ("singleton", "processing") | ("stately", "queued" | "processing" | "failing"):
            return state
        case ("exclusive", "queued" | "processing" | "failing"):
            return "live"
        case ("key_strict_fifo", "processing" | "failing"):
            return "first"
        case _:
            return None


def refusal(policy: Policy, siblings: Iterable[State]) -> State | None:
    """Return the state of the job that keeps another one of its key from being queued, if any."""
    wanted = place(policy, "queued")
    return None if wanted is None else next((state for state in siblings if place(policy, state) == wanted), None)


def is_busy(policy: Policy, siblings: Iterable[State]) -> bool:
    """Return whether other jobs of a key block all its queued ones, whatever their order."""
    blocking = {"processing", "failing", "failed"} if policy == "key_strict_fifo" else {"processing"}
    return policy in SERIAL and any(state in blocking for state in siblings)


def given_back(policy: Policy, state: State, siblings: Iterable[State]) -> State:
    """Return the state of a job released to `state`; without a free slot: failing, else failed."""
    taken = {place(policy, sibling) for sibling in siblings} - {None}
    if state == "queued" and place(policy, "queued") in taken:
        state = "failing"
    return "failed" if policy == "stately" and state == "failing" and "failing" in taken else state
