"""Runs on Redis: claim, renew, settle and reap them."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, assert_never

from pgjq.errors import StorageError, StorageUnavailableError, ValidationError
from pgjq.outcome import Cancelled, Completed, EndedRun, Failed, Failing, Released, Snoozed, attempt_outcome
from pgjq.storage.base import HeartbeatResult, Settled, settled_as
from pgjq.storage.redis import rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Claimed, Lease, Reaped, Settlement
    from pgjq.storage.redis.queue_scripts import QueueScripts

# The servers' default limit (proto-max-bulk-len); they close the connection of a client that sends more.
LARGEST_BLOB: Final = 512 << 20


class RedisRuns:
    """The part of `RedisOperations` about runs and their leases."""

    _scripts: QueueScripts

    async def claim(
        self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy, claim_id: int | None = None
    ) -> list[Claimed]:
        """See `Operations`."""
        taken: list[Claimed] = []
        for queue in queues:
            if len(taken) == limit:
                break
            request = _claim_request(worker, limit - len(taken), policy, claim_id)
            try:
                taken += rows.claimed(queue, *await self._scripts.run("claim", queue, rows.write(request)))
            except StorageError as error:
                # With a claim_id the worker finds the whole claim later; without, it gets the jobs taken so far.
                if not taken or (claim_id is not None and isinstance(error, StorageUnavailableError)):
                    raise
                break  # The next claim will meet the error again.
        return taken

    async def find_claimed(self, queues: Sequence[str], claim_id: int) -> list[Claimed]:
        """See `Operations`."""
        found: list[Claimed] = []
        for queue in queues:
            found += rows.claimed(queue, *await self._scripts.run("find_claimed", queue, rows.write(str(claim_id))))
        return found

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        states: dict[int, Any] = {}
        for queue, indexes in _by_queue(settlement.lease for settlement in settlements).items():
            mine = [settlements[n] for n in indexes]
            request = [_settle_row(s.lease, s.outcome) for s in mine]
            results = [_result(s.outcome) for s in mine]
            found = json.loads(await self._scripts.run("settle", queue, rows.write(request), *results))
            states |= zip(indexes, found, strict=True)
        return [Settled(s.lease, states[n] or None) for n, s in enumerate(settlements)]

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        found: dict[int, list[Any] | None] = {}
        for queue, indexes in _by_queue(settlement.lease for settlement in settlements).items():
            request = [_settlement_error(settlements[n]) for n in indexes]
            found |= zip(
                indexes, json.loads(await self._scripts.run("find_settled", queue, rows.write(request))), strict=True
            )
        return [settled_as(s, _ended_run(found[n])) for n, s in enumerate(settlements)]

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """See `Operations`."""
        answers: dict[int, int] = {}
        for queue, indexes in _by_queue(leases).items():
            request = [_fence(leases[n]) for n in indexes]
            answers |= zip(
                indexes, json.loads(await self._scripts.run("heartbeat", queue, rows.write(request))), strict=True
            )
        return HeartbeatResult(
            lost=[lease for n, lease in enumerate(leases) if answers[n] == 0],
            cancel_requested=[lease for n, lease in enumerate(leases) if answers[n] == 2],  # noqa: PLR2004
        )

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """See `Operations`."""
        return bool(await self._scripts.run("save_checkpoint", lease.queue, rows.write(_fence(lease)), checkpoint))

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """See `Operations`. Reads the deadlines of all queues first, to reap the most overdue jobs."""
        request: dict[str, Any] = {"limit": limit, "stale_age": rows.micros(stale_age)}
        late: list[tuple[int, int, str]] = []
        for queue in await self._scripts.queues():
            found = await self._scripts.run("list_overdue", queue, rows.write(request))
            late += [(int(at), int(seq), queue) for at, seq in found]
        taken: list[tuple[int, int, Reaped]] = []
        for queue, count in Counter(queue for *_, queue in sorted(late)[:limit]).items():
            own = request | {"limit": count, "seed": random.randrange(2**31)}  # noqa: S311
            rows_found, *payloads = await self._scripts.run("reap", queue, rows.write(own))
            taken += rows.reaped(queue, rows_found, payloads)
        return [reaped for *_, reaped in sorted(taken, key=lambda known: known[:2])]

    async def next_deadline(self) -> float | None:
        """See `Operations`."""
        found = [await self._scripts.run("next_deadline", queue) for queue in await self._scripts.queues()]
        return min((left / rows.SECOND for left in found if left is not None), default=None)


def _by_queue(leases: Iterable[Lease]) -> dict[str, list[int]]:
    """Return the indexes of the leases by queue."""
    indexes: dict[str, list[int]] = defaultdict(list)
    for n, lease in enumerate(leases):
        indexes[lease.queue].append(n)
    return indexes


def _fence(lease: Lease) -> tuple[str, int, str]:
    seq, token = lease.key
    return seq, lease.number, token


def _claim_request(worker: str, limit: int, policy: LeasePolicy, claim_id: int | None) -> dict[str, Any]:
    return {
        "worker": worker,
        "claim_id": None if claim_id is None else str(claim_id),
        "limit": limit,
        "lease": rows.optional_micros(policy.lease),
        "expire": rows.optional_micros(policy.expire),
        "max_stalled": policy.max_stalled,
        "requeue_exhausted": policy.reap_exhausted == "requeue",
    }


def _settle_row(lease: Lease, outcome: Outcome) -> tuple[Any, ...]:
    """Write a settlement for settle.lua: fence, end, delay, the attempt's outcome, error."""
    how = attempt_outcome(outcome)
    match outcome:
        case Completed():
            return *_fence(lease), "completed", 0
        case Cancelled():
            return *_fence(lease), "cancelled", 0, how
        case Failed(error):
            return *_fence(lease), "failed", 0, how, rows.write_error(error)
        case Failing(error, delay):
            return *_fence(lease), "failing", rows.micros(delay), how, rows.write_error(error)
        case Snoozed(delay):
            return *_fence(lease), "released", rows.micros(delay), how
        case Released():
            return *_fence(lease), "released", 0, how
        case _:
            assert_never(outcome)


def _settlement_error(settlement: Settlement) -> tuple[Any, ...]:
    """Write a settlement for find_settled.lua: the fence, and the error or None."""
    outcome = settlement.outcome
    error = rows.write_error(outcome.error) if isinstance(outcome, Failing | Failed) else None
    return *_fence(settlement.lease), error


def _ended_run(answer: list[Any] | None) -> EndedRun | None:
    """Read an answer of find_settled.lua."""
    if not answer:
        return None
    recorded, state, same_error = answer
    return EndedRun(recorded or None, state or None, same_error)


def _result(outcome: Outcome) -> bytes:
    """Write a result with a prefix, which distinguishes an empty result from none."""
    if not isinstance(outcome, Completed) or outcome.result is None:
        return b""
    if len(outcome.result) >= LARGEST_BLOB:
        size = len(outcome.result)
        raise ValidationError(f"a result of {size} bytes is too large to store (limit: {LARGEST_BLOB - 1} bytes)")
    return b"r" + outcome.result
