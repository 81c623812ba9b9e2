"""Wrong payloads, results, handlers and callbacks: each marked line is an error, as in wrong_options.py."""

from __future__ import annotations

from dataclasses import dataclass

import pgjq


@dataclass
class Order:
    number: int


storage = pgjq.MemoryStorage()
text = pgjq.JsonSerde(str)
queue = pgjq.Queue("orders", storage=storage, payload_serde=pgjq.JsonSerde(Order), result_serde=text)

queue.enqueue(None, 7)  # error: reportArgumentType, arg-type
queue.send({"number": 7})  # error: reportArgumentType, arg-type
queue.enqueue_many([(None, 7)])  # error: reportArgumentType, list-item
queue.enqueue_many([pgjq.NewJob(None, "seven")])  # error: reportArgumentType, arg-type
queue.enqueue_and_wait(None, None)  # error: reportArgumentType, arg-type
length: int = queue.enqueue_and_wait(None, Order(7))  # error: reportAssignmentType, assignment
kept: str = queue.get_result("order-7")  # error: reportAssignmentType, assignment
number: int | None = queue.enqueue(None, Order(7)).result  # error: reportAssignmentType, assignment
typed: pgjq.Queue[int, str] = queue  # error: reportAssignmentType, assignment
pgjq.Queue[Order, int]("orders", storage=storage, result_serde=text)  # error: reportArgumentType, arg-type
pgjq.Queue("orders", storage="memory:")  # error: reportArgumentType, arg-type


@queue.execute  # error: reportArgumentType, arg-type
def takes_another_payload(job: pgjq.Job[int]) -> str:
    return str(job.payload)


@queue.execute  # error: reportArgumentType, arg-type
def returns_another_result(job: pgjq.Job[Order]) -> int:
    return job.payload.number


@queue.execute  # error: reportArgumentType, arg-type
async def gets_the_sync_job(job: pgjq.Job[Order]) -> str:
    return str(job.payload)


@queue.execute  # error: reportArgumentType, arg-type
async def returns_another_result_later(job: pgjq.AsyncJob[Order]) -> int:
    return job.payload.number


@queue.execute  # error: reportArgumentType, arg-type
def takes_three(job: pgjq.Job[Order], done: pgjq.Done[str], more: int) -> None:
    done(None, str(job.payload.number + more))


@queue.execute
def reads_what_is_not_there(job: pgjq.Job[Order]) -> str:
    return job.payload.name  # error: reportAttributeAccessIssue, attr-defined


@queue.execute
def answers_with_another_type(job: pgjq.Job[Order], done: pgjq.Done[str]) -> None:
    done(None, job.payload.number)  # error: reportArgumentType, arg-type


def on_event(event: pgjq.Event) -> None:
    print(event.name)


def on_error(error: BaseException) -> None:
    print(error)


queue.on("done", on_event)  # error: reportArgumentType, call-overload
queue.on("warning", on_event)  # error: reportArgumentType, call-overload
queue.on("error", on_event)  # error: reportArgumentType, call-overload
queue.on("completed", on_error)  # error: reportArgumentType, call-overload
pgjq.Client(storage).on("failed", on_error)  # error: reportArgumentType, call-overload
pgjq.Reaper(storage=storage).on("stalled", on_error)  # error: reportArgumentType, call-overload


async def consume(words: pgjq.AsyncQueue[str, int]) -> None:
    await words.enqueue(None, 7)  # error: reportArgumentType, arg-type
    length: str = await words.enqueue_and_wait(None, "word")  # error: reportAssignmentType, assignment
    print(length)
