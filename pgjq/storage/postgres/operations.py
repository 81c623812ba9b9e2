"""The operations on PostgreSQL, in both modes from one source.

An operation is one statement of `sql/queries`, whose header states its guarantees, on a pooled connection in autocommit
mode; this module turns values into parameters and rows into values. Only `enqueue` may use a caller connection, and
only a batch of COPYs is a transaction of more than one statement.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import asynccontextmanager, suppress
from itertools import chain, repeat
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

import psycopg

from pgjq.errors import (
    LeaseLostError,
    PolicyError,
    StorageError,
    StorageUnavailableError,
    UnsupportedError,
    ValidationError,
)
from pgjq.job import CancelResult
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Outcome, Released, Snoozed
from pgjq.policy import POLICIES, SERIAL
from pgjq.storage.base import HeartbeatResult, Settled, Settlement, made
from pgjq.storage.mailbox import Mailbox, MailboxSubscription
from pgjq.storage.postgres import literals, rows
from pgjq.storage.postgres.caller_connection import wrap_caller_connection
from pgjq.storage.postgres.definitions import PostgresDefinitions
from pgjq.storage.postgres.enqueue import enqueue
from pgjq.storage.postgres.error_translation import GONE, TRANSIENT, refused_outcomes
from pgjq.storage.postgres.job_transaction import PostgresJobTransaction, lost, open_unit, transaction_name
from pgjq.storage.postgres.listener import ANSWERS, EVENTS, WAKE, Listener, Notice, Topic
from pgjq.storage.postgres.result_waiter import PostgresResultWaiter, ResultReads
from pgjq.storage.postgres.schedules import PostgresSchedules

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

    from pgjq.blocking import Mode
    from pgjq.job import EnqueueResult, Event, JobStatus, QueueStats, State, WarningReason, WorkerInfo
    from pgjq.lease import LeasePolicy
    from pgjq.options import JobFilter, Submission
    from pgjq.storage.base import Claimed, Lease, Reaped, Subscription
    from pgjq.storage.postgres.leader import LeaderLocks
    from pgjq.storage.postgres.pool import Pool
    from pgjq.storage.postgres.queries import Queries
    from pgjq.storage.postgres.session import Rows, Session
    from pgjq.storage.workers import Registration

R = TypeVar("R")

_ENDED: dict[type[Outcome], State] = {Completed: "completed", Failed: "failed", Cancelled: "cancelled"}

TRIES = 5
# How long a worker's number is cached. The reaper prunes a name, with its number, that was not requested for 8 days: a
# worker that resumes after such a sleep must get a new number.
ASK_NUMBER_AFTER = 3600.0
# A writer checks for sleeping workers when it enqueues, and commits later. A worker finds a job that was missed in
# between by reading again: twice soon after falling asleep, then seldom.
LOOK_AGAIN = (0.05, 0.25)
# A worker that has just run out of jobs pauses and reads once more before it registers as sleeping: else, at a rate of
# jobs that it can follow, a quarter of all commits would have to wake it. Where jobs come one at a time, a caller may
# wait for each of them, and waking the worker costs little; so it does not pause.
NAP = 0.01
# The server closes a connection that sends a parameter of 1 GiB. Bytes are sent in hex.
LARGEST_PARAMETER = 1_000_000_000


class PostgresOperations(PostgresDefinitions, PostgresSchedules):
    """The operations, in the mode of the pool."""

    def __init__(self, mode: Mode, pool: Pool, queries: Queries, listener: Listener, leader_locks: LeaderLocks) -> None:
        self._mode: Mode = mode
        self._pool = pool
        self._queries = queries
        self._listener = listener
        self._leader_locks = leader_locks
        self._questions = ResultReads(mode, self._fetch, self._repeated)
        self._worker_ids: dict[str, tuple[int, float]] = {}  # By worker: its number, and when it was read.
        self._is_busy = False  # The last claim that found jobs took more than one.

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, generated_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """See `Operations`. Nothing is retried on a caller connection."""
        if connection is None:
            return await self._repeated(lambda session: enqueue(session, queue, jobs, generated_ids=generated_ids))
        session = wrap_caller_connection(connection, self._mode, self._queries)
        await self._pool.check()
        return await enqueue(session, queue, jobs, generated_ids=generated_ids)

    async def claim(
        self, queues: Sequence[str], *, worker: str, limit: int, policy: LeasePolicy, claim_id: int | None = None
    ) -> list[Claimed]:
        """See `Operations`."""
        number = await self._worker_number(worker)
        params = {
            "queues": literals.texts(queues),
            "worker": number,
            "limit": limit,
            "lease": policy.lease,
            "expire": policy.expire,
            "max_stalled": policy.max_stalled,
            "requeue_exhausted": policy.reap_exhausted == "requeue",
            "claim_id": claim_id,
        }
        taken = rows.claimed(await self._fetch_or_set_aside("claim", params, queues), queues)
        if taken:
            self._is_busy = len(taken) > 1
        return taken

    async def find_claimed(self, queues: Sequence[str], claim_id: int) -> list[Claimed]:
        """See `Operations`."""
        return rows.claimed(await self._fetch("find_claimed", {"claim_id": claim_id}), queues)

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        if not settlements:
            return []
        ordered = sorted(settlements, key=lambda s: s.lease.key)
        params = _lease_params([s.lease for s in ordered]) | _outcome_params([s.outcome for s in ordered])
        _check_size(params["results"])
        with refused_outcomes():
            ((seqs, leases, states),) = await self._fetch("settle", params)
        if seqs is None:
            return [Settled(s.lease, _ENDED[type(s.outcome)]) for s in settlements]
        found = {(seq, lease): rows.state_name(state) for seq, lease, state in zip(seqs, leases, states, strict=True)}
        return [Settled(s.lease, found.get(_fence(s.lease))) for s in settlements]

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        params = _lease_params([s.lease for s in settlements])
        params["errors"] = literals.texts(_outcome_row(s.outcome)[2] for s in settlements)
        found = {
            (seq, lease): (rows.state_name(state), same_error)
            for seq, lease, state, same_error in await self._fetch("find_settled", params)
        }
        return [made(s, *found.get(_fence(s.lease), (None, False))) for s in settlements]

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """See `Operations`."""
        found = await self._fetch("heartbeat", _lease_params(leases))
        held = {(seq, lease): cancel_requested for seq, lease, cancel_requested, _ in found}
        skipped = held.keys() - {(seq, lease) for seq, lease, _, is_renewed in found if is_renewed}
        return HeartbeatResult(
            lost=[lease for lease in leases if _fence(lease) not in held],
            cancel_requested=[lease for lease in leases if held.get(_fence(lease))],
            skipped=[lease for lease in leases if _fence(lease) in skipped],
        )

    @asynccontextmanager
    async def job_transaction(
        self, claimed: Claimed, session_factory: Callable[[], Any] | None = None
    ) -> AsyncGenerator[PostgresJobTransaction]:
        """See `Operations`."""
        await self._pool.check()
        lease = claimed.lease
        job_transaction: PostgresJobTransaction | None = None
        try:
            async with open_unit(self._mode, self._pool, self._queries, session_factory) as session:
                name = self._transaction_name(lease, claimed.attempts)
                await session.command(f"set local application_name = '{name}'")
                job_transaction = PostgresJobTransaction(session, claimed)
                yield job_transaction
                job_transaction.check_completed()
            await self._pass_on(lease)
        except Exception as error:
            # The answer to COMMIT may be lost; then only the database knows the outcome. Each driver has its own error
            # for that, so this catches any.
            if job_transaction is not None and job_transaction.completed and await self._was_completed(lease):
                return
            if job_transaction is not None and not isinstance(error, LeaseLostError) and await self._is_lost(lease):
                raise LeaseLostError(lost(lease)) from error
            raise

    def _transaction_name(self, lease: Lease | Reaped, attempts: int) -> str:
        return transaction_name(self._queries.schema, lease.queue, lease.id, attempts)

    async def _is_lost(self, lease: Lease) -> bool:
        """Return whether the lease is lost: a reaper ends the sessions of runs that it takes back."""
        queue_id, seq = lease.key
        try:
            return not await self._fetch("holds_lease", {"queue_id": queue_id, "seq": seq, "lease": lease.number})
        except StorageError:
            return False

    async def _pass_on(self, lease: Lease) -> None:
        """Unblock the next job of a key, which the handler's snapshot may not have shown."""
        queue_id, seq = lease.key
        if POLICIES[queue_id & 7] in SERIAL:
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

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """See `Operations`."""
        queue_id, seq = lease.key
        params = {"queue_id": queue_id, "seq": seq, "lease": lease.number, "checkpoint": checkpoint}
        return bool(await self._fetch("save_checkpoint", params))

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """See `Operations`. Reads `next_deadline` first: planning the statement costs more."""
        due = await self.next_deadline()
        if due is None or due > 0:
            return []
        began = time.monotonic()
        params = {"limit": limit, "stale_age": float(stale_age)}
        found = [rows.reaped(row) for row in await self._fetch_or_set_aside("reap", params)]
        if found:
            names = literals.texts(self._transaction_name(job, job.attempts) for job in found)
            with suppress(StorageError):  # The reaped jobs must be returned; the sessions time out later by themselves.
                await self._fetch("end_transactions", {"names": names, "elapsed": time.monotonic() - began})
        return found

    async def next_deadline(self) -> float | None:
        """See `Operations`."""
        return (await self._fetch("next_deadline"))[0][0]

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """See `Operations`. Repeats its reads, so that it sees each change of a concurrent writer."""
        params = {"queue": queue, "id": job_id}
        while True:
            if await self.cancel_many(queue, [job_id]):
                return CancelResult("cancelled")
            found = (await self.get(queue, [job_id])).get(job_id)
            match found.state if found else None:
                case None:
                    return CancelResult("not_found")
                case "completed" | "failed" | "cancelled" as ended:
                    return CancelResult(ended)
                case "processing":
                    if not active or await self._fetch("request_cancel", params):
                        return CancelResult("processing")
                case _:
                    continue

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Operations`."""
        found = await self._fetch("retry", {"queue": queue, "id": job_id})
        if not found:
            return None
        *job, became = found[0]
        if became == "taken":
            raise PolicyError(f"queue {queue!r} has no place for job {job_id!r} now: another one of its key has it")
        return rows.job_status(job)

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return len(await self._fetch("delete", {"queue": queue, "ids": literals.texts(sorted(job_ids))}))

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Operations`."""
        found = await self._fetch("get", {"queue": queue, "ids": literals.texts(job_ids)})
        return {status.id: status for status in map(rows.job_status, found)}

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """See `Operations`."""
        params = {
            "queue": wanted.queue,
            "state": wanted.state,
            "singleton_key": wanted.singleton_key,
            "task": wanted.task,
            "created_before": wanted.created_before,
            "created_after": wanted.created_after,
            "after": wanted.after,
            "limit": wanted.limit,
        }
        found = await self._fetch("find", params)
        return [rows.job_status(row) for row in found], found[-1][0] if len(found) == wanted.limit else None

    async def queue_names(self) -> list[str]:
        """See `Operations`."""
        return [name for (name,) in await self._fetch("queue_names")]

    async def stats(self, queue: str) -> QueueStats:
        """See `Operations`."""
        return rows.queue_stats(queue, (await self._fetch("stats", {"queue": queue}))[0])

    async def worker_seen(self, registration: Registration) -> None:
        """See `Operations`."""
        key, worker, queues, heartbeat = registration
        params = {"registration": key, "worker": worker, "queues": list(queues), "heartbeat": heartbeat}
        await self._fetch("worker_seen", params)

    async def worker_stopped(self, registration: Registration) -> None:
        """See `Operations`."""
        await self._fetch("worker_stopped", {"registration": registration.id})

    async def workers(self) -> list[WorkerInfo]:
        """See `Operations`."""
        return [rows.worker_info(row) for row in await self._fetch("workers")]

    async def prune(self, *, limit: int = 1000) -> int:
        """See `Operations`."""
        ended = (await self._fetch("prune_ended", {"limit": limit}))[0][0]
        await self._fetch("prune_time_slots")
        await self._fetch("prune_workers")
        self._worker_ids.clear()
        return ended + (await self._fetch_or_set_aside("prune_waiting", {"limit": limit - ended}))[0][0]

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """See `Operations`."""
        await self._pool.check()
        return await self._run_blocking(lambda: self._leader_locks.elect(role, candidate, ttl))

    async def leads(self, role: str, candidate: str) -> bool:
        """See `Operations`."""
        return self._leader_locks.leads(role, candidate)

    async def resign(self, role: str, candidate: str) -> None:
        """See `Operations`."""
        await self._run_blocking(lambda: self._leader_locks.resign(role, candidate))

    async def result_waiter(self, queue: str, job_id: str) -> PostgresResultWaiter:
        """See `Operations`."""
        await self._pool.check()
        box: Mailbox[Notice] = Mailbox(self._mode)
        topic = Topic(ANSWERS, queue, job_id)
        if self._listener.note(topic, box):
            await self._run_blocking(lambda: self._listener.tell(topic, box))
        return PostgresResultWaiter(topic, box, self._listener, self._questions)

    async def warn(self, queue: str, job_id: str, *, task: str | None, reason: WarningReason, count: int) -> None:
        """See `Operations`."""
        await self._fetch("warn", {"queue": queue, "id": job_id, "task": task, "reason": reason, "count": count})

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        await self._pool.check()
        box: Mailbox[Notice] = _Decoded(self._mode, queue)
        topic = Topic(EVENTS)
        await self._run_blocking(lambda: self._listener.want(topic, box))
        if self._listener.deaf:
            self._listener.leave(topic, box)
            raise UnsupportedError("events do not come through a transaction pooler; connect to the server directly")
        return MailboxSubscription(box, lambda: self._listener.leave(topic, box))  # pyright: ignore[reportArgumentType]

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`."""
        await self._pool.check()
        box: Mailbox[Notice] = Mailbox(self._mode)
        topics = [Topic(WAKE, queue) for queue in queues]
        until = time.monotonic() + timeout
        if self._is_busy and (
            await self._look(queues) or await box.take(min(timeout, NAP)) or await self._look(queues)
        ):
            return True
        try:
            for topic in topics:
                await self._run_blocking(lambda topic=topic: self._listener.want(topic, box))
            return await self._sleep(queues, box, until, poll)
        finally:
            box.close()
            for topic in topics:
                self._listener.leave(topic, box)

    async def close(self) -> None:
        """See `Operations`."""
        await self._pool.close()

    async def _look(self, queues: Sequence[str]) -> bool:
        due = (await self._fetch("peek", {"queues": literals.texts(queues)}))[0][0]
        return due is not None and due <= 0

    async def _sleep(self, queues: Sequence[str], box: Mailbox[Notice], until: float, poll: float) -> bool:
        looks = chain(LOOK_AGAIN, repeat(poll))
        while True:
            due = (await self._fetch("peek", {"queues": literals.texts(queues)}))[0][0]
            if due is not None and due <= 0:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            if await box.take(min(left, next(looks), left if due is None else due)):
                return True

    async def _fetch(self, name: str, params: dict[str, Any] | None = None) -> Rows:
        """Run the statement of an operation."""
        return await self._repeated(lambda session: session.fetch(name, params or {}))

    async def _fetch_or_set_aside(self, name: str, params: dict[str, Any], queues: Sequence[str] | None = None) -> Rows:
        """Run a statement about many jobs; end jobs with invalid values as failed, and repeat it.

        The failed statement had no effect. Where every row is valid, this costs nothing.
        """
        for _ in range(TRIES - 1):
            try:
                return await self._fetch(name, params)
            except StorageError as error:
                if not isinstance(error.__cause__, psycopg.DataError) or not await self._set_aside(queues):
                    raise
        return await self._fetch(name, params)

    async def _set_aside(self, queues: Sequence[str] | None) -> int:
        """End jobs of these queues, or of all, as failed if invalid; return how many."""
        ((jobs,),) = await self._fetch(
            "fail_invalid_jobs", {"queues": None if queues is None else literals.texts(queues)}
        )
        if jobs:
            logging.getLogger("pgjq").error(
                "jobs set aside as failed: their rows hold values out of bounds; find_jobs shows each one's error",
                extra={"jobs": jobs, "queues": queues},
            )
        return jobs

    async def _repeated(self, work: Callable[[Session], Awaitable[R]]) -> R:
        """Run `work` with a connection; repeat it after a deadlock, which had no effect."""
        for _ in range(TRIES - 1):
            try:
                return await self._once(work)
            except StorageError as error:
                if not isinstance(error.__cause__, TRANSIENT):
                    raise
        return await self._once(work)

    async def _once(self, work: Callable[[Session], Awaitable[R]]) -> R:
        async with self._session() as session:
            return await work(session)

    @asynccontextmanager
    async def _session(self) -> AsyncGenerator[Session]:
        """Borrow a connection; replace the whole pool if the server was demoted or is shutting down."""
        try:
            async with self._pool.session() as session:
                yield session
        except StorageUnavailableError as error:
            if isinstance(error.__cause__, GONE):
                self._pool.drop()
            raise

    async def _worker_number(self, worker: str) -> int:
        """Return the number of a worker in claims, cached for a while."""
        number, asked = self._worker_ids.get(worker, (0, -inf))
        now = time.monotonic()
        if now - asked > ASK_NUMBER_AFTER:
            number = (await self._fetch("worker_number", {"worker": worker}))[0][0]
            self._worker_ids[worker] = number, now
        return number

    async def _run_blocking(self, call: Callable[[], R]) -> R:
        """Make a blocking call: on this thread in sync mode, on another one in async mode."""
        return call() if self._mode == "sync" else await asyncio.to_thread(call)


class _Decoded(Mailbox[Any]):
    """A mailbox that receives notifications and holds their events, of one queue or of all."""

    def __init__(self, mode: Mode, queue: str | None) -> None:
        super().__init__(mode)
        self._queue = queue

    def put(self, item: Any) -> None:
        events: list[Event] = [] if item is None else rows.events(item)
        for event in events:
            if self._queue in (None, event.queue):
                super().put(event)


def _lease_params(leases: Sequence[Lease]) -> dict[str, Any]:
    return {
        "queue_ids": literals.numbers(lease.key[0] for lease in leases),
        "seqs": literals.numbers(lease.key[1] for lease in leases),
        "leases": literals.numbers(lease.number for lease in leases),
    }


def _check_size(results: str) -> None:
    if len(results) > LARGEST_PARAMETER:
        size = len(results) // 2
        raise ValidationError(f"results of {size} bytes are too large to store (limit: {LARGEST_PARAMETER // 2} bytes)")


def _fence(lease: Lease) -> tuple[int, int]:
    """Return a lease's identity in rows; a batch may contain one job under two leases."""
    return lease.key[1], lease.number


def _outcome_params(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return outcomes as parameters of settle.sql; columns without values are omitted."""
    if all(isinstance(outcome, Completed) for outcome in outcomes):
        results = literals.blobs(outcome.result for outcome in outcomes if isinstance(outcome, Completed))
        return {"states": None, "results": results, "errors": None, "delays": None}
    columns = list(zip(*map(_outcome_row, outcomes), strict=True))
    return {
        "states": literals.numbers(columns[0]),
        "results": literals.blobs(columns[1]),
        "errors": literals.texts(columns[2]),
        "delays": literals.numbers(columns[3]),
    }


def _outcome_row(outcome: Outcome) -> tuple[int, bytes | None, str | None, float | None]:
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
