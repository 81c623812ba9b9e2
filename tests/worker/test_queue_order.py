"""Several queues in one worker: they take turns, or are served in their order."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, Job, Queue, Worker
from tests.worker.conftest import Events

if TYPE_CHECKING:
    from pgjq.storage.base import Storage

BLOCK = 30.0


@pytest.mark.parametrize("concurrency", [1, 4])
def test_no_queue_starves_behind_the_backlog_of_another(storage: Storage, concurrency: int) -> None:
    """The first queue never gets empty: each of its jobs enqueues another one, and takes long enough to stay behind."""
    one, two, three = (Queue(name, storage=storage, block_timeout=BLOCK) for name in ("one", "two", "three"))
    fed = threading.Event()

    @one.execute
    def feed(_job: Job) -> None:
        if not fed.wait(0.02):
            one.send(None)

    two.execute(lambda job: job.id)
    three.execute(lambda job: job.id)
    others = Events(two, "completed"), Events(three, "completed")
    one.enqueue_many([(None, None)] * 50)
    with Worker(one, two, three, concurrency=concurrency):
        for n in range(3):
            two.enqueue(str(n), None)
            three.enqueue(str(n), None)
            others[0].wait(n + 1)
            others[1].wait(n + 1)
        fed.set()
    assert [[event.id for event in other.events] for other in others] == [["0", "1", "2"]] * 2


def test_in_strict_order_a_queue_waits_until_those_before_it_are_empty(storage: Storage) -> None:
    ran: list[str] = []
    queues = [Queue(name, storage=storage, block_timeout=BLOCK) for name in ("b", "a", "c")]
    heard = [Events(queue, "completed") for queue in queues]
    for queue in reversed(queues):
        queue.execute(lambda job: ran.append(job.queue))
        queue.enqueue_many([(None, None)] * 40)
    with Worker(*queues, concurrency=1, strict=True):
        for each in heard:
            each.wait(40)
    assert ran == ["b"] * 40 + ["a"] * 40 + ["c"] * 40


def test_a_workers_record_has_its_queues_whatever_the_turn(storage: Storage) -> None:
    one, two = (Queue(name, storage=storage, block_timeout=BLOCK, worker_id="w") for name in ("one", "two"))
    heard = Events(one, "completed")
    one.execute(lambda job: job.id)
    two.execute(lambda job: job.id)
    with Worker(one, two, concurrency=1):
        for n in range(5):
            one.enqueue(str(n), None)
            heard.wait(n + 1)
        assert [(w.id, w.queues) for w in Client(storage).get_workers()] == [("w", ("one", "two"))]
