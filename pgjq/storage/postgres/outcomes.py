"""Leases and outcomes as parameters of statements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, assert_never

from pgjq.errors import ValidationError
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Outcome, Released, Snoozed, attempt_outcome
from pgjq.storage.postgres import array_literals, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.job import State
    from pgjq.storage.base import Lease

ENDED: dict[type[Outcome], State] = {Completed: "completed", Failed: "failed", Cancelled: "cancelled"}
# The server closes a connection that sends a parameter of 1 GiB. Bytes are sent in hex.
LARGEST_PARAMETER = 1_000_000_000


def lease_params(leases: Sequence[Lease]) -> dict[str, Any]:
    """Return leases as parameters: a column of each part of their identity."""
    return {
        "queue_ids": array_literals.numbers(lease.key[0] for lease in leases),
        "seqs": array_literals.numbers(lease.key[1] for lease in leases),
        "leases": array_literals.numbers(lease.number for lease in leases),
    }


def check_size(results: str) -> None:
    """Refuse results that the server would close the connection for."""
    if len(results) > LARGEST_PARAMETER:
        size = len(results) // 2
        raise ValidationError(f"results of {size} bytes are too large to store (limit: {LARGEST_PARAMETER // 2} bytes)")


def fence(lease: Lease) -> tuple[int, int]:
    """Return a lease's identity in rows; a batch may contain one job under two leases."""
    return lease.key[1], lease.number


def outcome_params(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return outcomes as parameters of settle.sql; columns without values are omitted."""
    if all(isinstance(outcome, Completed) for outcome in outcomes):
        results = array_literals.blobs(outcome.result for outcome in outcomes if isinstance(outcome, Completed))
        return {"states": None, "results": results, "errors": None, "delays": None, "outcomes": None}
    columns = list(zip(*map(outcome_row, outcomes), strict=True))
    return {
        "states": array_literals.numbers(columns[0]),
        "results": array_literals.blobs(columns[1]),
        "errors": array_literals.texts(columns[2]),
        "delays": array_literals.numbers(columns[3]),
        "outcomes": array_literals.texts(map(attempt_outcome, outcomes)),
    }


def outcome_row(outcome: Outcome) -> tuple[int, bytes | None, str | None, float | None]:
    """Return state, result, error and delay."""
    match outcome:
        case Completed(result):
            return 3, result, None, None
        case Failed(error):
            return 4, None, rows.write_error(error), None
        case Cancelled():
            return 5, None, None, None
        case Failing(error, delay):
            return 2, None, rows.write_error(error), delay
        case Snoozed(delay):
            return 0, None, None, delay
        case Released():
            return 0, None, None, None
        case _:
            assert_never(outcome)
