"""Captures see what was enqueued in their block, by any producer, and nothing else."""

from __future__ import annotations

import asyncio
import threading
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq
from pgjq.testing import assert_enqueued, capture, drain, refute_enqueued

if TYPE_CHECKING:
    from tests.kit.conftest import Kit


def make(storage: Any, kind: Any = pgjq.Queue) -> tuple[Any, Any]:
    queue = kind("mail", storage=storage)

    @queue.task(aliases=["bill"])
    def receipt(order: int, *, copy: bool = False, due: timedelta | None = None) -> None:
        del order, copy, due

    return queue, receipt


def test_a_capture_sees_its_block_only(kit: Kit) -> None:
    queue, receipt = make(kit.storage)
    for n in range(3):
        receipt.enqueue(n)
    with capture(queue) as jobs:
        assert list(jobs) == []
        refute_enqueued(receipt, 1)
        receipt.using(priority=5, singleton_key="k").enqueue(7, copy=True)
        pgjq.Client(kit.storage).enqueue("mail", "x", {"task": "bill", "args": [8]})
        assert len(jobs) == 2
        assert_enqueued(receipt, 8)
    receipt.enqueue(9)
    assert [job.id for job in jobs][1:] == ["x"]
    assert (jobs[0].task, jobs[0].args, jobs[0].kwargs) == ("receipt", [7], {"copy": True})
    assert (jobs[0].priority, jobs[0].singleton_key, jobs[0].state) == (5, "k", "queued")
    refute_enqueued(receipt, 9, since=jobs)
    assert_enqueued(receipt, 9)
    assert_enqueued(receipt, 1)
    drain(queue)
    assert assert_enqueued(receipt).state == "completed"
    if not isinstance(kit.storage, pgjq.RedisStorage):  # It forgets the payloads of jobs that have ended.
        assert_enqueued(receipt, 1)


def test_asserts_compare_what_they_are_given(kit: Kit) -> None:
    queue, receipt = make(kit.storage)
    receipt.enqueue(7, copy=True, due=timedelta(hours=1))
    queue.enqueue("plain", {"n": 1}, priority=3)
    assert_enqueued(receipt)
    assert_enqueued(receipt, 7)
    assert_enqueued(receipt, copy=True, due=timedelta(hours=1))
    assert_enqueued(receipt, order=7)
    refute_enqueued(receipt, 7, copy=False)
    assert_enqueued(queue, {"n": 1}, priority=3, id="plain")
    refute_enqueued(queue, {"n": 2})
    with pytest.raises(AssertionError, match=r"not enqueued: receipt\(8\); enqueued:\n  receipt\(7, copy=True"):
        assert_enqueued(receipt, 8)
    with pytest.raises(AssertionError, match="must not be"):
        refute_enqueued(receipt, 7)
    with pytest.raises(pgjq.ValidationError, match="wrong arguments"):
        assert_enqueued(receipt, 7, colour="red")


def test_since_a_time(kit: Kit) -> None:
    _, receipt = make(kit.storage)
    receipt.enqueue(1)
    kit.clock.advance(minutes=1)
    since = kit.clock.now()
    refute_enqueued(receipt, 1, since=since)
    receipt.enqueue(2)
    assert_enqueued(receipt, 2, since=since)


def test_async_queues_are_captured_in_both_ways(kit: Kit) -> None:
    queue, receipt = make(kit.storage, pgjq.AsyncQueue)

    async def story() -> None:
        with capture(queue) as jobs:
            await receipt.enqueue(1)
            assert_enqueued(receipt, 1)
        async with capture(queue) as more:
            await receipt.enqueue(2)
        assert [jobs[0].args, more[0].args, len(jobs), len(more)] == [[1], [2], 1, 1]
        await kit.storage.operations("async").close()

    asyncio.run(story())


def test_a_long_history_is_not_captured() -> None:
    queue, receipt = make(pgjq.MemoryStorage())
    queue.enqueue_many([receipt.call(n) for n in range(2500)])
    with capture(queue) as jobs:
        receipt.enqueue(1)
    assert len(jobs) == 1


def test_what_no_job_can_have_is_refused_also_without_a_job(kit: Kit) -> None:
    queue, receipt = make(kit.storage)
    other = pgjq.Queue("other", storage=kit.storage)
    for check in (assert_enqueued, refute_enqueued):
        with pytest.raises(pgjq.ValidationError, match="wrong arguments"):
            check(receipt, 7, colour="red")
        with pytest.raises(pgjq.ValidationError, match="priorty"):
            check(queue, priorty=3)
        with pytest.raises(pgjq.ValidationError, match="compared by its payload"):
            check(queue, 1, 2)
        for wrong in (datetime(2026, 1, 1), 5, "yesterday"):  # noqa: DTZ001
            with pytest.raises(pgjq.ValidationError, match="since"):
                check(receipt, since=wrong)  # type: ignore[arg-type]
        with capture(other) as jobs, pytest.raises(pgjq.ValidationError, match="a capture of queue 'other'"):
            check(receipt, since=jobs)


def test_a_job_whose_arguments_do_not_fit_is_another_job(kit: Kit) -> None:
    queue, receipt = make(kit.storage)
    for job_id, args in (("text", ["x"]), ("many", [1, 2, 3]), ("none", [])):
        queue.client.enqueue("mail", job_id, {"task": "receipt", "args": args})
    receipt.enqueue(7)
    assert assert_enqueued(receipt, 7, copy=False).args == [7]
    refute_enqueued(receipt, 8)
    assert assert_enqueued(receipt).id == "text"


def test_every_producer_is_captured_and_no_old_job_that_changes(kit: Kit) -> None:
    queue, receipt = make(kit.storage)

    @queue.task(max_attempts=2, retry_delay=0, retry_backoff=False)
    def unlucky() -> None:
        raise OSError("no line")

    failed = unlucky.enqueue()
    drain(queue)
    receipt.using(id="later", delay=60).enqueue(0)
    with capture(queue) as jobs:
        failed.retry()
        queue.enqueue_many([receipt.call(1), ("plain", {"n": 2})])
        by_thread = threading.Thread(target=receipt.enqueue, args=[3])
        by_thread.start()
        by_thread.join()
        if isinstance(kit.storage, pgjq.PostgresStorage):
            with psycopg.connect(kit.storage.conninfo) as connection:
                connection.execute("""select pgjq.enqueue('mail', '{"task": "receipt", "args": [4]}')""")
        drain(queue, until=timedelta(hours=1))
    expected = [[1], [], [3], *([[4]] if isinstance(kit.storage, pgjq.PostgresStorage) else [])]
    if not isinstance(kit.storage, pgjq.RedisStorage):  # It forgets the payloads of jobs that have ended.
        assert [job.args for job in jobs] == expected
    assert len(jobs) == len(expected)


def test_captures_nest(kit: Kit) -> None:
    queue, receipt = make(kit.storage)
    with capture(queue) as outer:
        receipt.enqueue(1)
        with capture(queue) as inner:
            receipt.enqueue(2)
            refute_enqueued(receipt, 1)
        assert_enqueued(receipt, 1)
    assert (len(outer), len(inner)) == (2, 1)
