"""Runs on PostgreSQL: claim, renew, settle and reap them."""

from __future__ import annotations

import time
from contextlib import asynccontextmanager, suppress
from math import inf
from typing import TYPE_CHECKING, Any

from pgjq.errors import (
    LeaseLostError,
    StorageError,
    StorageUnavailableError,
)
from pgjq.outcome import Completed, EndedRun
from pgjq.policy import Policy
from pgjq.storage.base import HeartbeatResult, Settled, Settlement, settled_as
from pgjq.storage.postgres import array_literals, rows
from pgjq.storage.postgres.error_translation import refused_outcomes
from pgjq.storage.postgres.job_transaction import PostgresJobTransaction, lost, open_unit, transaction_name
from pgjq.storage.postgres.outcomes import ENDED, check_size, fence, lease_params, outcome_params, outcome_row
from pgjq.storage.postgres.statements import Statements

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Sequence

    from pgjq.lease import LeasePolicy
    from pgjq.storage.base import Claimed, Lease, Reaped
    from pgjq.storage.postgres.claim_positions import ClaimPositions

# How long a worker's number is cached. The reaper prunes a name, with its number, that was not requested for 8 days: a
# worker that resumes after such a sleep must get a new number.
ASK_NUMBER_AFTER = 3600.0


class PostgresRuns(Statements):
    """The part of `PostgresOperations` about runs and their leases."""

    _worker_ids: dict[str, tuple[int, float]]  # By worker: its number, and when it was read.
    _positions: ClaimPositions
    _is_busy: bool  # The last claim that found jobs took more than one.

    async def claim(
        self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy, claim_id: int | None = None
    ) -> list[Claimed]:
        """See `Operations`."""
        number = await self._worker_number(worker)
        begun = self._positions.begin(queues)
        params = {
            "queues": array_literals.texts(queues),
            "worker": number,
            "limit": limit,
            "lease": policy.lease,
            "expire": policy.expire,
            "max_stalled": policy.max_stalled,
            "requeue_exhausted": policy.reap_exhausted == "requeue",
            "claim_id": claim_id,
            "after_ranks": begun.ranks,
            "after_seqs": begun.seqs,
        }
        found = await self._fetch_or_set_aside("claim", params, queues)
        self._positions.end(begun, found, limit)
        if found:
            self._is_busy = len(found) > 1
        return rows.claimed(found, queues)

    async def find_claimed(self, queues: Sequence[str], claim_id: int) -> list[Claimed]:
        """See `Operations`."""
        return rows.claimed(await self._fetch("find_claimed", {"claim_id": claim_id}), queues)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        if not settlements:
            return []
        ordered = sorted(settlements, key=lambda s: s.lease.key)
        params = lease_params([s.lease for s in ordered]) | outcome_params([s.outcome for s in ordered])
        check_size(params["results"])
        with refused_outcomes():
            ((seqs, leases, states),) = await self._fetch("settle", params)
        if seqs is None:
            return [Settled(s.lease, ENDED[type(s.outcome)]) for s in settlements]
        found = {(seq, lease): rows.state_name(state) for seq, lease, state in zip(seqs, leases, states, strict=True)}
        return [Settled(s.lease, found.get(fence(s.lease))) for s in settlements]

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        params = lease_params([s.lease for s in settlements])
        params["errors"] = array_literals.texts(outcome_row(s.outcome)[2] for s in settlements)
        found = {
            (seq, lease): EndedRun(recorded, None if state is None else rows.state_name(state), same_error)
            for seq, lease, state, recorded, same_error in await self._fetch("find_settled", params)
        }
        return [settled_as(s, found.get(fence(s.lease))) for s in settlements]

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """See `Operations`."""
        found = await self._fetch("heartbeat", lease_params(leases))
        held = {(seq, lease): cancel_requested for seq, lease, cancel_requested, _ in found}
        skipped = held.keys() - {(seq, lease) for seq, lease, _, is_renewed in found if is_renewed}
        return HeartbeatResult(
            lost=[lease for lease in leases if fence(lease) not in held],
            cancel_requested=[lease for lease in leases if held.get(fence(lease))],
            skipped=[lease for lease in leases if fence(lease) in skipped],
        )

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """See `Operations`."""
        queue_id, seq = lease.key
        params = {"queue_id": queue_id, "seq": seq, "lease": lease.number, "checkpoint": checkpoint}
        return bool(await self._fetch("save_checkpoint", params))

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """See `Operations`."""
        began = time.monotonic()
        params = {"limit": limit, "stale_age": float(stale_age)}
        found = [rows.reaped(row) for row in await self._fetch_or_set_aside("reap", params)]
        if found:
            names = array_literals.texts(self._transaction_name(job, job.attempts) for job in found)
            with suppress(StorageError):  # The reaped jobs must be returned; the sessions time out later by themselves.
                await self._fetch("end_transactions", {"names": names, "elapsed": time.monotonic() - began})
        return found

    async def next_deadline(self) -> float | None:
        """See `Operations`."""
        return (await self._fetch("next_deadline"))[0][0]

    async def _worker_number(self, worker: str) -> int:
        """Return the number of a worker in claims, cached for a while."""
        number, asked = self._worker_ids.get(worker, (0, -inf))
        now = time.monotonic()
        if now - asked > ASK_NUMBER_AFTER:
            number = (await self._fetch("worker_number", {"worker": worker}))[0][0]
            self._worker_ids[worker] = number, now
        return number

    @asynccontextmanager
    async def job_transaction(
        self,
        claimed: Claimed,
        session_factory: Callable[[], Any] | None = None,
        *,
        idle_limit: float | None = None,
    ) -> AsyncGenerator[PostgresJobTransaction]:
        """See `Operations`."""
        await self._pool.check()
        lease = claimed.lease
        job_transaction: PostgresJobTransaction | None = None
        try:
            async with open_unit(self._mode, self._pool, self._queries, session_factory) as session:
                job_transaction = PostgresJobTransaction(session, claimed, idle_limit)
                name = self._transaction_name(lease, claimed.attempts)
                await job_transaction.idle_limit.begin(f"set local application_name = '{name}'")
                yield job_transaction
                job_transaction.check_completed()
            await self._pass_on(lease)
        except Exception as error:
            # The answer to COMMIT may be lost; then only the database knows the outcome. Each driver has its own error
            # for that, so this catches any.
            if job_transaction is not None and job_transaction.completed and await self._was_completed(lease):
                return
            if job_transaction is None or isinstance(error, LeaseLostError):
                raise
            if await self._is_lost(lease, is_cut=job_transaction.idle_limit.may_have_ended(error)):
                raise LeaseLostError(lost(lease)) from error
            raise

    def _transaction_name(self, lease: Lease | Reaped, attempts: int) -> str:
        return transaction_name(self._queries.schema, lease.queue, lease.id, attempts)

    async def _is_lost(self, lease: Lease, *, is_cut: bool) -> bool:
        """Return whether the lease is lost: a reaper ends the sessions of runs that it takes back.

        `is_cut`: the server may have ended the session at its idle limit. Then a lease past its deadline is lost, too.
        """
        queue_id, seq = lease.key
        try:
            found = await self._fetch("holds_lease", {"queue_id": queue_id, "seq": seq, "lease": lease.number})
        except StorageError:
            return False
        return not found or (is_cut and found[0][0])

    async def _pass_on(self, lease: Lease) -> None:
        """Unblock the next job of a key, which the handler's snapshot may not have shown."""
        queue_id, seq = lease.key
        if Policy.of_queue(queue_id).is_serial:
            await self._fetch("unblock_key_of_job", {"queue_id": queue_id, "seq": seq})

    async def _was_completed(self, lease: Lease) -> bool:
        """Return whether a COMMIT without an answer took effect; retry until the database says so."""
        queue_id, seq = lease.key
        pause = 0.05
        while True:
            try:
                # Waits for the row lock of a COMMIT that is still in flight.
                await self._fetch("wait_for_settlement", {"queue_id": queue_id, "seq": seq})
                return (await self.find_settled([Settlement(lease, Completed())]))[0].state == "completed"
            except StorageUnavailableError:
                await self._run_blocking(lambda pause=pause: time.sleep(pause))
                pause = min(pause * 2, 5.0)
