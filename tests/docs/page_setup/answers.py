"""What the page takes for granted: a worker that answers, and a function to alert."""

import os
from dataclasses import dataclass
from datetime import UTC, datetime
from uuid import UUID, uuid4

import pgjq

storage = pgjq.open_storage(os.environ["PGJQ_URL"])
client = pgjq.Client(storage)
queue = pgjq.Queue("mail", storage=storage)
alerts: list[tuple[str, str]] = []


@queue.execute
def add_up(job: pgjq.Job) -> int:
    return job.payload["order"] * 6


def alert(queue_name: str, job_id: str) -> None:
    alerts.append((queue_name, job_id))


@dataclass
class Line:
    article: str
    count: int


def afterwards() -> None:
    assert globals()["total"] == 42
    order = globals()["Order"](uuid4(), datetime.now(UTC), [Line("tea", 2)])
    orders: pgjq.Queue = globals()["orders"]
    seen: list[object] = []
    orders.execute(lambda job: seen.append(job.payload))
    with orders:
        orders.enqueue_and_wait("order-1", order)
    assert seen == [order]
    assert isinstance(order.id, UUID)


queue.run()
