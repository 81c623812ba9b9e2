"""Request and response: enqueue a job, and wait for its result.

* The waiter registers for the notification before it enqueues, so it cannot miss one in between.
* An existing job is joined; an existing result is returned. `wait` only joins.
* A notification says only that the job has ended; the waiter then reads the result, of any size.
* Neither a retry nor a stall ends the wait: the process that ends the job notifies.
* After the time-out the job continues, and its result can still be read.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pgjq.deadline import Deadline, bounded
from pgjq.errors import (
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    MaxRetriesError,
    StorageError,
    StorageUnavailableError,
    TimeoutError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pgjq.job import EnqueueResult
    from pgjq.options import Submission
    from pgjq.storage.base import Answer, Operations


# A working storage gets this long for the enqueue, however short the time-out is, and this much longer than the
# time-out to read a result that arrived in the last moment.
ENQUEUE_SECONDS = 1.5
READ_SECONDS = 0.75


@dataclass(frozen=True, slots=True)
class JobReference:
    """A job whose result a caller waits for, and for how long."""

    queue: str
    id: str
    timeout: float

    @property
    def payload(self) -> Any:
        """The payload, which a caller that has not enqueued the job does not know."""
        return None

    def __str__(self) -> str:
        return f"job {self.id!r} in queue {self.queue!r}"


@dataclass(frozen=True, slots=True)
class ResultRequest:
    """A job to enqueue, whose result a caller waits for, and for how long."""

    queue: str
    job: Submission
    payload: Any
    generated_id: bool
    timeout: float

    def __str__(self) -> str:
        return f"job {self.job.id!r} in queue {self.queue!r}"


def _deadline(timeout: float) -> Deadline:
    return Deadline(max(timeout + READ_SECONDS, ENQUEUE_SECONDS))


async def request_result(
    ops: Operations, question: ResultRequest, publish_result: Callable[[EnqueueResult], None]
) -> bytes | None:
    """Return the job's result as bytes; `publish_result` gets the result of the enqueue."""
    until = time.monotonic() + question.timeout
    with bounded(_deadline(question.timeout)):
        try:
            return await _request_result(ops, question, publish_result, until)
        except StorageUnavailableError as error:
            if time.monotonic() < until:
                raise
            raise TimeoutError(
                f"the storage did not answer within {question.timeout:g} s; {question} may have been enqueued"
            ) from error


async def join_result(ops: Operations, wanted: JobReference) -> bytes | None:
    """Return the result of a job that exists as bytes."""
    until = time.monotonic() + wanted.timeout
    with bounded(_deadline(wanted.timeout)):
        try:
            return await _join_result(ops, wanted, until)
        except StorageUnavailableError as error:
            if time.monotonic() < until:
                raise
            raise TimeoutError(f"the storage did not answer within {wanted.timeout:g} s; {wanted} goes on") from error


async def _join_result(ops: Operations, wanted: JobReference, until: float) -> bytes | None:
    waiter = await ops.result_waiter(wanted.queue, wanted.id)
    try:
        if not await waiter.join():
            raise JobNotFoundError(
                f"there is no job {wanted.id!r} in queue {wanted.queue!r}: it was deleted, or the transaction that"
                " enqueued it has not committed"
            )
        answer = await waiter.answer(max(0.0, until - time.monotonic()))
    finally:
        await waiter.close()
    return await _result(ops, wanted, answer, is_ours=True)


async def _request_result(
    ops: Operations, question: ResultRequest, publish_result: Callable[[EnqueueResult], None], until: float
) -> bytes | None:
    waiter = await ops.result_waiter(question.queue, question.job.id)
    try:
        enqueued = await waiter.enqueue(question.job, generated_id=question.generated_id)
        publish_result(enqueued)
        if enqueued.status == "completed":
            return enqueued.result
        answer = await waiter.answer(max(0.0, until - time.monotonic()))
    finally:
        await waiter.close()
    return await _result(ops, question, answer, is_ours=enqueued.status == "queued")


async def _result(
    ops: Operations, question: ResultRequest | JobReference, answer: Answer | None, *, is_ours: bool
) -> bytes | None:
    match answer.state if answer else None:
        case "completed" if answer and not answer.expired:
            return answer.result
        case "completed":
            raise JobNotFoundError(f"{question} completed, but its result expired at once: give it a longer result_ttl")
        case "failed":
            raise _failure(question, answer, is_ours=is_ours)
        case "cancelled":
            raise JobCancelledError(f"{question} was cancelled")
        case None if is_ours:
            raise JobNotFoundError(f"{question} was deleted during the wait")
        case None:
            raise JobNotFoundError(
                f"{question} does not exist: another job of its key holds the slot of its queue's policy,"
                " or it was deleted during the wait"
            )
        case state:
            raise TimeoutError(await _lateness(ops, question, state))


def _failure(question: ResultRequest | JobReference, answer: Answer | None, *, is_ours: bool) -> JobFailedError:
    error = answer.error if answer else None
    message = f"{question} failed: {error.type}: {error.message}" if error else f"{question} failed"
    if answer is None or answer.attempts < answer.max_attempts:
        return JobFailedError(message, error)
    # A caller that joined a job has its own payload, which may differ from the job's.
    return MaxRetriesError(message, error, payload=question.payload if is_ours else None, attempts=answer.attempts)


async def _lateness(ops: Operations, question: ResultRequest | JobReference, state: str) -> str:
    late = f"{question} has not ended within {question.timeout:g} s; it is {state}"
    try:
        served = any(worker.alive and question.queue in worker.queues for worker in await ops.workers())
    except StorageError:
        return late
    if served:
        return f"{late} and goes on"
    return f"{late}, and no worker is listening on that queue: start one with a handler for it"
