"""Policies: how many jobs of a key a queue lets be in which state, and who comes first.

A job's key is its `singleton_key`; no key is a key of its own. These are the rules as pure functions of the states of
a key's jobs: the memory storage asks them, and what PostgreSQL decides by an index (`pgjq.place` in SQL) is tested
against them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, get_args

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pgjq.job import State

Policy = Literal["standard", "short", "singleton", "stately", "exclusive", "key_strict_fifo"]

# In the order of their numbers, which PostgreSQL keeps in the last bits of a queue's own.
POLICIES: Final[tuple[Policy, ...]] = get_args(Policy)

# One job of a key at a time.
SERIAL: Final[frozenset[Policy]] = frozenset(("singleton", "stately", "key_strict_fifo"))


def place(policy: Policy, state: State) -> str | None:
    """Name what a job in a state takes up of its key: of each place there is one. None: there is room for many."""
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
    """Return the state of the job that keeps another one of its key from being queued, if there is one."""
    wanted = place(policy, "queued")
    return None if wanted is None else next((state for state in siblings if place(policy, state) == wanted), None)


def is_busy(policy: Policy, siblings: Iterable[State]) -> bool:
    """Say whether the other jobs of a key keep all of its queued ones from running, whatever their order."""
    blocking = {"processing", "failing", "failed"} if policy == "key_strict_fifo" else {"processing"}
    return policy in SERIAL and any(state in blocking for state in siblings)


def given_back(policy: Policy, state: State, siblings: Iterable[State]) -> State:
    """Say what becomes of a run that is to go back to `state`: what finds no place is failing, or else has failed."""
    taken = {place(policy, sibling) for sibling in siblings} - {None}
    if state == "queued" and place(policy, "queued") in taken:
        state = "failing"
    return "failed" if policy == "stately" and state == "failing" and "failing" in taken else state
