"""Events of one job arrive in the order in which they happened."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import Client, Job, LeasePolicy, NewJob, Queue
from pgjq.event_bus import NAMES
from pgjq.worker.event_order import EventOrder, Gate
from tests.worker.conftest import Events, abandon

if TYPE_CHECKING:
    from pgjq.storage.base import Storage

BLOCK = 30.0
EVENTS = [name for name in NAMES if name != "error"]
COUNT = 60


def lives(heard: Events) -> dict[str, list[Any]]:
    """Return the names of each job's events, in the order of their arrival."""
    told: defaultdict[str, list[Any]] = defaultdict(list)
    for event in heard.events:
        told[event.id].append(event.name)
    return told


def fail_once(job: Job) -> None:
    if job.attempts == 1:
        raise ValueError("first")


async def fail_once_async(job: Any) -> None:
    fail_once(job)


@pytest.mark.parametrize("handler", [fail_once, fail_once_async])
def test_an_attempt_ends_before_the_next_one_begins(storage: Storage, handler: Any) -> None:
    queue = Queue("q", storage=storage, concurrency=4, block_timeout=BLOCK)
    queue.execute(handler)
    heard, done = Events(queue, *EVENTS), Events(queue, "completed")
    with queue:
        queue.enqueue_many([(f"{n}", None) for n in range(COUNT)])
        done.wait(COUNT)
    life = ["queued", "processing", "failing", "processing", "completed"]
    assert lives(heard) == {f"{n}": life for n in range(COUNT)}


def test_a_job_is_queued_before_it_is_processing(storage: Storage) -> None:
    queue = Queue("q", storage=storage, concurrency=4, block_timeout=BLOCK)
    queue.execute(lambda job: job.id)
    heard, done = Events(queue, *EVENTS), Events(queue, "completed")

    def produce(producer: int) -> None:
        for n in range(COUNT):
            queue.enqueue(f"{producer}-{n}", None)
            queue.send(None)
            queue.enqueue_and_wait(f"{producer}-{n}-wait", None, timeout=100)

    with queue:
        threads = [threading.Thread(target=produce, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        done.wait(9 * COUNT)
    told = lives(heard)
    assert len(told) == 9 * COUNT
    assert {tuple(life) for life in told.values()} == {("queued", "processing", "completed")}


def test_a_job_stalls_before_it_is_processing_again(storage: Storage) -> None:
    for n in range(COUNT):
        abandon(storage, NewJob(f"{n}", None), policy=LeasePolicy(lease=0.2, heartbeat=None))
    queue = Queue("q", storage=storage, concurrency=4, block_timeout=0.01, lease_policy=LeasePolicy(reap_interval=0.01))
    queue.execute(lambda job: job.id)
    heard, done = Events(queue, *EVENTS), Events(queue, "completed")
    with queue:
        done.wait(COUNT)
    assert lives(heard) == {f"{n}": ["stalled", "failing", "processing", "completed"] for n in range(COUNT)}


def test_a_job_fails_before_it_is_queued_again(storage: Storage) -> None:
    queue = Queue("q", storage=storage, block_timeout=BLOCK)
    queue.execute(lambda job: 1 / job.payload)
    heard, done = Events(queue, *EVENTS), Events(queue, "completed")
    client = Client(storage)
    with queue:
        for n in range(COUNT):
            queue.enqueue(f"{n}", 0, max_attempts=1)
            while client.get_status("q", f"{n}").state != "failed":  # type: ignore[union-attr]
                pass
            queue.enqueue(f"{n}", 1)
        done.wait(COUNT)
    life = ["queued", "processing", "failed", "queued", "processing", "completed"]
    assert lives(heard) == {f"{n}": life for n in range(COUNT)}


def test_a_job_is_failing_before_it_is_cancelled(storage: Storage) -> None:
    queue = Queue("q", storage=storage, block_timeout=BLOCK)
    queue.execute(lambda job: 1 / job.payload)
    heard = Events(queue, *EVENTS)
    client = Client(storage)
    with queue:
        for n in range(COUNT):
            queue.enqueue(f"{n}", 0, retry_delay=1000)
            while client.get_status("q", f"{n}").state != "failing":  # type: ignore[union-attr]
                pass
            assert queue.cancel(f"{n}").status == "cancelled"
        heard.wait(4 * COUNT)
    assert lives(heard) == {f"{n}": ["queued", "processing", "failing", "cancelled"] for n in range(COUNT)}


def test_a_gate_holds_what_comes_before_it_opens_and_nothing_later() -> None:
    gate, called = Gate(), list[int]()
    assert gate.hold(lambda: called.append(1))
    assert gate.hold(lambda: called.append(2))
    assert called == []
    gate.open()
    gate.open()
    assert called == [1, 2]
    assert not gate.hold(lambda: called.append(3))


def test_a_queue_without_subscribers_holds_nothing_back(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    queue.on("error", print)
    assert EventOrder(queue.bus).begin_enqueue() is None
