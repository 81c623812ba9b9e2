"""Correct programs with the sync classes: type checkers accept every line."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, assert_type

import pgjq


@dataclass
class Order:
    number: int


@dataclass
class Receipt:
    text: str


storage = pgjq.MemoryStorage()

# Without a type, payloads and results are Any.
plain = pgjq.Queue("plain", storage=storage)
assert_type(plain, pgjq.Queue[Any, Any])
assert_type(plain.enqueue_and_wait(None, {"order": 7}), Any)

# The serdes give the types; so does an annotation, or a type argument.
typed = pgjq.Queue(
    "typed", storage=storage, payload_serde=pgjq.JsonSerde(Order), result_serde=pgjq.MsgpackSerde(Receipt)
)
assert_type(typed, pgjq.Queue[Order, Receipt])
annotated: pgjq.Queue[list[Order], None] = pgjq.Queue("annotated", storage=storage)
payload_only = pgjq.Queue[Order]("payload", storage=storage)
assert_type(payload_only, pgjq.Queue[Order, Any])
several = pgjq.Queue("several", storage=storage, payload_serde=pgjq.JsonSerde(list[Order]))
assert_type(several, pgjq.Queue[list[Order], Any])
union = pgjq.Queue("union", storage=storage, payload_serde=pgjq.JsonSerde(Order | None))

added = typed.enqueue("order-7", Order(7), priority=5, delay=timedelta(minutes=1), retry_limit=3, retry_backoff=True)
assert_type(added, pgjq.EnqueueResult[Receipt])
assert_type(added.result, Receipt | None)
assert_type(typed.send(Order(7), run_at=datetime.now(UTC), singleton_key="a", on_failed="duplicate"), str)
assert_type(typed.enqueue_and_wait(None, Order(7), timeout=10, max_attempts=1), Receipt)
typed.enqueue_many([pgjq.NewJob(None, Order(1), priority=1), (None, Order(2)), ("three", Order(3))])
assert_type(typed.get_result("order-7"), Receipt | None)
assert_type(typed.get_result("order-7", default=0), Receipt | int)
status = typed.get_status("order-7")
assert status is not None
assert_type(status.result, Receipt | None)
typed.cancel("order-7", active=True)

# One set of options, for several calls.
options: pgjq.EnqueueOptions = {"priority": 5, "expire_in_seconds": 60}
typed.enqueue(None, Order(8), **options)
definition: pgjq.QueueOptions = {"policy": "singleton", "retry_limit": 5}


@typed.execute
def handle(job: pgjq.Job[Order]) -> Receipt:
    assert_type(job.payload, Order)
    return Receipt(str(job.payload.number))


@annotated.execute
async def handle_async(job: pgjq.AsyncJob[list[Order]]) -> None:
    await job.heartbeat()
    assert_type(job.payload, list[Order])


@plain.execute
def handle_anything(job: pgjq.Job) -> str:
    return f"{job.payload}"


@payload_only.execute
def handle_later(job: pgjq.Job[Order], done: pgjq.Done) -> None:
    done(None, job.payload.number)


several.execute(lambda job: len(job.payload))


@union.execute
def handle_object(job: pgjq.Job[object]) -> None:
    print(job.payload)


def report(error: BaseException) -> None:
    print(error)


def note(event: pgjq.Event) -> None:
    print(event.name, event.id)


typed.on("error", report)
typed.on("completed", note)
pgjq.Worker(typed, plain, concurrency=5)

with pgjq.Client(storage) as client:
    client.create_queue("orders", policy="key_strict_fifo", retry_limit=5, warning_queue_size=100)
    client.create_queue("mail", **definition)
    client.update_queue("orders", retry_limit=None, dead_letter="mail")
    client.enqueue("orders", None, {"order": 7}, priority=5, singleton_key="a", debounce=60)
    client.enqueue_and_wait("orders", "7", {"order": 7}, timeout=1.5, result_ttl=60)
    client.retry_many("orders", created_before=datetime.now(UTC), progress=print)
    client.on("warning", note)
    client.on("error", report)

reaper = pgjq.Reaper(storage=storage)
reaper.on("stalled", note)
reaper.on("leadership_lost", lambda: print("lost"))
