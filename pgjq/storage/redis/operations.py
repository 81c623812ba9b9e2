"""The operations on Redis, in both modes from one source.

An operation on a queue is one Lua script (`lua/`), which states its guarantees in its header, and one round trip; this
module converts arguments and replies. An operation on several queues goes queue by queue, because in a cluster each
queue may be on another server.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final, TypeVar, assert_never

from pgjq.deadline import Deadline, bounded, current_deadline
from pgjq.errors import StorageError, StorageUnavailableError, UnsupportedError, ValidationError
from pgjq.job import CancelResult
from pgjq.options import RETENTION_SECONDS
from pgjq.outcome import Cancelled, Completed, Failed, Failing, Released, Snoozed
from pgjq.storage.base import HeartbeatResult, Settled, made
from pgjq.storage.mailbox import Mailbox, MailboxSubscription
from pgjq.storage.redis import enqueue, rows
from pgjq.storage.redis.keys import OF_A_QUEUE
from pgjq.storage.redis.result_waiter import RedisResultWaiter
from pgjq.storage.redis.scripts import script
from pgjq.storage.workers import list_workers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractAsyncContextManager
    from datetime import datetime

    from pgjq.blocking import Mode
    from pgjq.job import EnqueueResult, JobStatus, QueueStats, WarningReason, WorkerInfo
    from pgjq.lease import LeasePolicy
    from pgjq.options import JobFilter, Submission
    from pgjq.outcome import Outcome
    from pgjq.storage.base import Claimed, JobTransaction, Lease, Reaped, Settlement, Subscription
    from pgjq.storage.redis.resp import Word
    from pgjq.storage.redis.storage import Channels, Shared
    from pgjq.storage.redis.subscribers import Notice
    from pgjq.storage.redis.transport import Transport
    from pgjq.storage.workers import Registration, WorkerRecord

R = TypeVar("R")

LOOKS: Final = 1000
LONGEST_MS: Final = 10**14
RESIGN_SECONDS: Final = 2.0
# The servers' default limit (proto-max-bulk-len); they close the connection of a client that sends more.
LARGEST_BLOB: Final = 512 << 20
RETENTION: Final = rows.micros(RETENTION_SECONDS)


class RedisOperations:
    """The operations, in the mode of the transport."""

    def __init__(self, mode: Mode, transport: Transport, channels: Channels, shared: Shared) -> None:
        self._mode: Mode = mode
        self._transport = transport
        self._channels = channels
        self._shared = shared
        self._keys = shared.keys

    async def enqueue(
        self, queue: str, jobs: Sequence[Submission], *, generated_ids: bool = False, connection: Any = None
    ) -> list[EnqueueResult]:
        """See `Operations`."""
        if connection is not None:
            raise UnsupportedError(
                "RedisStorage has no transactions; enqueue without connection=, or use PostgresStorage"
            )
        if not jobs:
            return []
        return enqueue.answers(jobs, await self._enqueue(queue, enqueue.arguments(jobs, generated_ids=generated_ids)))

    async def _enqueue(self, queue: str, arguments: Sequence[bytes]) -> Sequence[Any]:
        while (reply := await self._run("enqueue", queue, *arguments)) is None:
            await self._list(queue)
        return reply

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
                taken += rows.claimed(queue, *await self._run("claim", queue, rows.write(request)))
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
            found += rows.claimed(queue, *await self._run("find_claimed", queue, rows.write(str(claim_id))))
        return found

    async def settle(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        states: dict[int, Any] = {}
        for queue, indexes in _by_queue(settlement.lease for settlement in settlements).items():
            mine = [settlements[n] for n in indexes]
            request = [_settle_row(s.lease, s.outcome) for s in mine]
            results = [_result(s.outcome) for s in mine]
            found = json.loads(await self._run("settle", queue, rows.write(request), *results))
            states |= zip(indexes, found, strict=True)
        return [Settled(s.lease, states[n] or None) for n, s in enumerate(settlements)]

    async def find_settled(self, settlements: Sequence[Settlement]) -> list[Settled]:
        """See `Operations`."""
        found: dict[int, tuple[Any, bool]] = {}
        for queue, indexes in _by_queue(settlement.lease for settlement in settlements).items():
            request = [_settlement_error(settlements[n]) for n in indexes]
            found |= zip(indexes, json.loads(await self._run("find_settled", queue, rows.write(request))), strict=True)
        unknown = None, False
        return [made(s, *(found[n] or unknown)) for n, s in enumerate(settlements)]

    async def heartbeat(self, leases: Sequence[Lease]) -> HeartbeatResult:
        """See `Operations`."""
        answers: dict[int, int] = {}
        for queue, indexes in _by_queue(leases).items():
            request = [_fence(leases[n]) for n in indexes]
            answers |= zip(indexes, json.loads(await self._run("heartbeat", queue, rows.write(request))), strict=True)
        return HeartbeatResult(
            lost=[lease for n, lease in enumerate(leases) if answers[n] == 0],
            cancel_requested=[lease for n, lease in enumerate(leases) if answers[n] == 2],  # noqa: PLR2004
        )

    def job_transaction(
        self, claimed: Claimed, session_factory: Callable[[], Any] | None = None
    ) -> AbstractAsyncContextManager[JobTransaction]:
        """Raise UnsupportedError: the handler's writes and the job cannot be committed together."""
        del session_factory
        raise UnsupportedError(
            f"RedisStorage has no transactions; complete job {claimed.lease.id!r} by returning its result"
        )

    async def save_checkpoint(self, lease: Lease, checkpoint: bytes) -> bool:
        """See `Operations`."""
        return bool(await self._run("save_checkpoint", lease.queue, rows.write(_fence(lease)), checkpoint))

    async def reap(self, *, limit: int = 1000, stale_age: float = 0.0) -> list[Reaped]:
        """See `Operations`. Reads the deadlines of all queues first, to reap the most overdue jobs."""
        request: dict[str, Any] = {"limit": limit, "stale_age": rows.micros(stale_age)}
        late: list[tuple[int, int, str]] = []
        for queue in await self._queues():
            found = await self._run("list_overdue", queue, rows.write(request))
            late += [(int(at), int(seq), queue) for at, seq in found]
        taken: list[tuple[int, int, Reaped]] = []
        for queue, count in Counter(queue for *_, queue in sorted(late)[:limit]).items():
            own = request | {"limit": count, "seed": random.randrange(2**31)}  # noqa: S311
            rows_found, *payloads = await self._run("reap", queue, rows.write(own))
            taken += rows.reaped(queue, rows_found, payloads)
        return [reaped for *_, reaped in sorted(taken, key=lambda known: known[:2])]

    async def next_deadline(self) -> float | None:
        """See `Operations`."""
        found = [await self._run("next_deadline", queue) for queue in await self._queues()]
        return min((left / rows.SECOND for left in found if left is not None), default=None)

    async def cancel(self, queue: str, job_id: str, *, active: bool = False) -> CancelResult:
        """See `Operations`."""
        _, found = await self._run("cancel", queue, rows.write({"ids": [job_id], "active": active}))
        return CancelResult(found.decode())

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        count, *_ = await self._run("cancel", queue, rows.write({"ids": list(job_ids)}))
        return count

    async def retry(self, queue: str, job_id: str) -> JobStatus | None:
        """See `Operations`."""
        _, found, *outcomes = await self._run("retry", queue, rows.write({"ids": [job_id], "show": True}))
        return next((status for _, status in rows.statuses(queue, found, outcomes)), None)

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        count, *_ = await self._run("retry", queue, rows.write({"ids": list(job_ids)}))
        return count

    async def delete(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._run("delete", queue, rows.write(list(job_ids)))

    async def get(self, queue: str, job_ids: Sequence[str]) -> dict[str, JobStatus]:
        """See `Operations`."""
        found, *outcomes = await self._run("get", queue, rows.write(list(job_ids)))
        return {status.id: status for _, status in rows.statuses(queue, found, outcomes)}

    async def content(self, queue: str, job_id: str) -> tuple[bytes, bytes | None] | None:
        """Read a job's payload and checkpoint, for the web page."""
        keys = dict(zip(OF_A_QUEUE, self._keys.of_queue(queue), strict=True))
        seq = await self._transport.command("HGET", keys["ids"], job_id)
        if seq is None:
            return None
        payload = await self._transport.command("HGET", keys["payloads"], seq)
        return None if payload is None else (payload, await self._transport.command("HGET", keys["checkpoints"], seq))

    async def find(self, wanted: JobFilter) -> tuple[list[JobStatus], int | None]:
        """See `Operations`.

        Numbers are times, and two queues on two servers may use the same one: a page does not end between two equal
        numbers, so that the next page misses no job.
        """
        queues = await self._queues() if wanted.queue is None else [wanted.queue]
        found = [pair for queue in queues for pair in await self._find(queue, wanted)]
        found.sort(key=lambda pair: pair[0])
        end = min(wanted.limit, len(found))
        while 0 < end < len(found) and found[end][0] == found[end - 1][0]:
            end += 1
        page = found[:end]
        return [status for _, status in page], page[-1][0] if len(page) >= wanted.limit else None

    async def _find(self, queue: str, wanted: JobFilter) -> list[tuple[int, JobStatus]]:
        found: list[tuple[int, JobStatus]] = []
        after: str | None = f"{wanted.after:016d}"
        while after is not None and len(found) < wanted.limit:
            request = {
                "after": after,
                "limit": wanted.limit - len(found),
                "max_reads": LOOKS,
                "state": wanted.state,
                "singleton_key": wanted.singleton_key,
                "task": wanted.task,
                "created_before": wanted.created_before and rows.micros_at(wanted.created_before),
                "created_after": wanted.created_after and rows.micros_at(wanted.created_after),
            }
            last, page, *outcomes = await self._run("find", queue, rows.write(request))
            found += rows.statuses(queue, page, outcomes)
            after = None if last is None else last.decode()
        return found

    async def queue_names(self) -> list[str]:
        """See `Operations`. Leaves out a queue whose jobs were all pruned and that no worker serves."""
        return await self._queues()

    async def stats(self, queue: str) -> QueueStats:
        """See `Operations`."""
        return rows.queue_stats(queue, await self._run("stats", queue))

    async def worker_seen(self, registration: Registration) -> None:
        """See `Operations`."""
        args = (self._shared.clock(), rows.write_registration(registration), *registration.queues)
        await self._transport.execute(script("worker_seen"), self._keys.workers, args)

    async def worker_stopped(self, registration: Registration) -> None:
        """See `Operations`."""
        await self._transport.command("HDEL", self._keys.workers[0], rows.write_registration(registration))

    async def workers(self) -> list[WorkerInfo]:
        """See `Operations`."""
        running: Counter[str] = Counter()
        for queue in await self._queues():
            running.update(dict(json.loads(await self._run("count_running", queue))))
        now, records = await self._worker_records()
        return list_workers(records, running, now)

    async def _worker_records(self) -> tuple[datetime, list[WorkerRecord]]:
        now, found = await self._transport.execute(script("workers"), self._keys.workers, (self._shared.clock(),))
        return rows.read_time(now), rows.worker_records(found)

    async def _prune_workers(self) -> None:
        """Remove old records. A worker seen again meanwhile is registered at its next heartbeat."""
        now, records = await self._worker_records()
        for record in records:
            if record.is_old(now):
                await self.worker_stopped(record.registration)

    async def prune(self, *, limit: int = 1000) -> int:
        """See `Operations`. Takes queues without jobs off the list of queues."""
        await self._prune_workers()
        count = 0
        for queue in await self._queues():
            if count < limit:
                request = {"limit": limit - count, "retention": RETENTION}
                pruned, left = await self._run("prune", queue, rows.write(request))
                count += pruned
                if left == 0:
                    await self._unlist(queue)
        return count

    async def elect(self, role: str, candidate: str, *, ttl: float) -> bool:
        """See `Operations`: SET NX PX, and a renewal that checks the owner first."""
        args = (candidate, max(1, min(round(ttl * 1000), LONGEST_MS)))
        elected = self._shared.elected
        leads = False
        try:
            leads = bool(await self._transport.execute(script("elect"), (self._keys.office(role),), args))
        finally:
            (elected.add if leads else elected.discard)((role, candidate))
        return leads

    async def leads(self, role: str, candidate: str) -> bool:
        """See `Operations`. A leadership ends only by time, which the candidate watches."""
        return (role, candidate) in self._shared.elected

    async def resign(self, role: str, candidate: str) -> None:
        """See `Operations`. Waits about 2 seconds for a silent server: the leadership expires by itself."""
        self._shared.elected.discard((role, candidate))
        with bounded(Deadline(min(current_deadline().left, RESIGN_SECONDS))):
            await self._transport.execute(script("resign"), (self._keys.office(role),), (candidate,))

    async def subscribe(self, queue: str | None = None) -> Subscription:
        """See `Operations`."""
        box: Mailbox[Notice] = _Decoded(self._mode, queue)
        events = self._channels.events
        await events.want(rows.EVERYTHING, box)
        return MailboxSubscription(box, lambda: events.leave(rows.EVERYTHING, box))  # pyright: ignore[reportArgumentType]

    async def warn(self, queue: str, job_id: str, *, task: str | None, reason: WarningReason, count: int) -> None:
        """See `Operations`."""
        await self._run("warn", queue, rows.write({"id": job_id, "task": task, "reason": reason, "count": count}))

    async def result_waiter(self, queue: str, job_id: str) -> RedisResultWaiter:
        """See `Operations`."""
        job = queue, job_id
        box: Mailbox[Notice] = Mailbox(self._mode)
        await self._channels.answers.want(job, box)
        return RedisResultWaiter(
            job, box, self._channels.answers, shared=self._shared, enqueue=self._enqueue, run=self._run
        )

    async def wait_for_work(self, queues: Sequence[str], timeout: float, poll: float = 5.0) -> bool:
        """See `Operations`: listens first, then checks for work, then sleeps."""
        box: Mailbox[Notice] = Mailbox(self._mode)
        subjects = [queue.encode() for queue in queues]
        until = time.monotonic() + timeout
        try:
            for subject in subjects:
                await self._channels.wakes.want(subject, box)
            return await self._sleep(queues, box, until, poll)
        finally:
            for subject in subjects:
                self._channels.wakes.leave(subject, box)

    async def close(self) -> None:
        """See `Operations`."""
        await self._transport.close()
        for listener in self._channels.all:
            await listener.close_here()

    async def _sleep(self, queues: Sequence[str], box: Mailbox[Notice], until: float, poll: float) -> bool:
        while True:
            looks = [await self._run("peek", queue) for queue in queues]
            due = min((look / rows.SECOND for look in looks if look is not None), default=None)
            if due == 0:
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            if await box.take(min(left, poll, left if due is None else due)):
                return True

    async def _run(self, name: str, queue: str, request: bytes = b"[]", *blobs: bytes) -> Any:
        """Run a queue's script."""
        keys, shared = self._keys, self._shared
        words: tuple[Word, ...] = (
            *(shared.clock(), queue, keys.events, keys.wake, keys.results, shared.unseen),
            *(request, *blobs),
        )
        return await self._transport.execute(script(name), keys.of_queue(queue), words)

    async def _list(self, queue: str) -> None:
        """Put a queue on the list of queues, and then the flag `listed` into the queue.

        In this order a queue with the flag is on the list, and a queue without the flag has no jobs. It is put on the
        list once more, because `_unlist` of another process may have come between: it took the queue off the list, and
        found no flag yet.
        """
        await self._transport.command("SADD", self._keys.queues, queue)
        await self._run("list_queue", queue)
        await self._transport.command("SADD", self._keys.queues, queue)

    async def _unlist(self, queue: str) -> None:
        """Take a queue off the list, unless it gets a job meanwhile; its next job lists it again.

        If the process dies in between, the queue is not on the list until a worker that serves it is seen.
        """
        await self._transport.command("SREM", self._keys.queues, queue)
        if not await self._run("unlist_queue", queue):
            await self._transport.command("SADD", self._keys.queues, queue)

    async def _queues(self) -> list[str]:
        return sorted(name.decode() for name in await self._transport.command("SMEMBERS", self._keys.queues))


class _Decoded(Mailbox[Any]):
    """A mailbox that decodes messages into events, of one queue or of all."""

    def __init__(self, mode: Mode, queue: str | None) -> None:
        super().__init__(mode)
        self._queue = queue

    def put(self, item: Any) -> None:
        for event in () if item is None else rows.events(item):
            if self._queue in (None, event.queue):
                super().put(event)


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
        "lease": rows.some_micros(policy.lease),
        "expire": rows.some_micros(policy.expire),
        "max_stalled": policy.max_stalled,
        "requeue_exhausted": policy.reap_exhausted == "requeue",
    }


def _settle_row(lease: Lease, outcome: Outcome) -> tuple[Any, ...]:
    """Write a settlement for settle.lua: the fence, the end, the delay, the error."""
    match outcome:
        case Completed():
            return *_fence(lease), "completed", 0
        case Cancelled():
            return *_fence(lease), "cancelled", 0
        case Failed(error):
            return *_fence(lease), "failed", 0, rows.write_error(error)
        case Failing(error, delay):
            return *_fence(lease), "failing", rows.micros(delay), rows.write_error(error)
        case Snoozed(delay):
            return *_fence(lease), "released", rows.micros(delay)
        case Released():
            return *_fence(lease), "released", 0
        case _:
            assert_never(outcome)


def _settlement_error(settlement: Settlement) -> tuple[Any, ...]:
    """Write a settlement for find_settled.lua: the fence, and the error or None."""
    outcome = settlement.outcome
    error = rows.write_error(outcome.error) if isinstance(outcome, Failing | Failed) else None
    return *_fence(settlement.lease), error


def _result(outcome: Outcome) -> bytes:
    """Write a result with a prefix, which distinguishes an empty result from none."""
    if not isinstance(outcome, Completed) or outcome.result is None:
        return b""
    if len(outcome.result) >= LARGEST_BLOB:
        size = len(outcome.result)
        raise ValidationError(f"a result of {size} bytes is too large to store (limit: {LARGEST_BLOB - 1} bytes)")
    return b"r" + outcome.result
