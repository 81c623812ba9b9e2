"""Waiting for answers on Redis: who is told, and what happens when word is lost, or the mark that asks for it."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.outcome import Completed, Failed
from pgjq.storage.base import Settlement
from pgjq.testing import RedisClock
from pgjq.testing.storage.harness import BOOM
from pgjq.testing.storage.waiting import submission
from tests.redis_server import RedisServer
from tests.worker.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from pathlib import Path

QUEUE = "q"
END = b"the end"
NONSENSE = (
    b"\xff",
    b"7",
    b"[]",
    b'{"a": 1}',
    b'["q", 7]',
    b'["q", "a", 1]',
    b'{"queue": 1, "at": "x", "events": [[]]}',
)


def work(storage: pgjq.RedisStorage) -> None:
    """Complete everything that waits, with its id as the result."""
    ops = storage.operations("sync")
    jobs = drive(ops.claim([QUEUE], worker="ann", limit=100, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Completed(job.lease.id.encode())) for job in jobs]))


def result_waiter(storage: pgjq.RedisStorage, job_id: str) -> Any:
    waiter = drive(storage.operations("sync").result_waiter(QUEUE, job_id))
    drive(waiter.enqueue(submission(job_id)))
    return waiter


def answer(waiter: Any) -> Any:
    told = drive(waiter.answer(60))
    drive(waiter.close())
    return told.result


@contextmanager
def overhearing(server: RedisServer, storage: pgjq.RedisStorage) -> Generator[Callable[[], list[Any]]]:
    """Hear all that is said on the answers' channel; the function returns it."""
    channel = storage.shared.keys.results
    with server.client() as client, client.pubsub(ignore_subscribe_messages=True) as heard:
        heard.subscribe(channel)
        heard.get_message(timeout=60)

        def said() -> list[Any]:
            client.publish(channel, END)
            messages = (heard.get_message(timeout=60)["data"] for _ in iter(int, 1))
            return [json.loads(data.partition(b"\n")[0]) for data in iter(lambda: next(messages), END)]

        yield said


def test_only_jobs_with_waiters_are_notified_of(redis_server: RedisServer, storage: pgjq.RedisStorage) -> None:
    pgjq.Client(storage).enqueue_many(QUEUE, [(str(n), None) for n in range(5)])
    waiters = [result_waiter(storage, "3"), result_waiter(storage, "new")]
    with overhearing(redis_server, storage) as said:
        work(storage)
        assert sorted((queue, job_id) for queue, job_id, *_ in said()) == [(QUEUE, "3"), (QUEUE, "new")]
    assert [answer(waiter) for waiter in waiters] == [b"3", b"new"]


def test_the_deletion_of_jobs_that_had_not_ended_is_notified_of(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    clock, client = RedisClock(storage), pgjq.Client(storage)
    waiters = [result_waiter(storage, "over")]
    work(storage)
    waiters.append(result_waiter(storage, "not yet"))
    with overhearing(redis_server, storage) as said:
        client.delete_job(QUEUE, "not yet")
        clock.advance(30 * 86400)
        assert drive(storage.operations("sync").prune()) == 1
        assert [(len(told), *told[:2], told[3]) for told in said()] == [(4, QUEUE, "not yet", False)]
    assert drive(waiters[1].answer(60)) is None
    for waiter in waiters:
        drive(waiter.close())


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 1_000_000])
def test_a_short_result_comes_with_the_notification_and_a_long_one_is_read(
    redis_server: RedisServer, storage: pgjq.RedisStorage, size: int
) -> None:
    ops, result = storage.operations("sync"), b"\n" * size
    waiter = result_waiter(storage, "a")
    (job,) = drive(ops.claim([QUEUE], worker="ann", limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Completed(result))]))
    with redis_server.client() as client:
        client.config_resetstat()
        assert answer(waiter) == result
        asked = client.info("commandstats")
    assert ("cmdstat_evalsha" in asked or "cmdstat_eval" in asked) == (size >= 4096)


def test_a_notification_of_an_end_that_was_undone_is_not_believed(storage: pgjq.RedisStorage) -> None:
    """A waiter listens before it joins: what it hears of a job that it only found may be older than that."""
    ops = storage.operations("sync")
    first, second = result_waiter(storage, "a"), drive(ops.result_waiter(QUEUE, "a"))
    (job,) = drive(ops.claim([QUEUE], worker="ann", limit=1, policy=pgjq.LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Failed(BOOM))]))
    assert drive(first.answer(60)).state == "failed"
    drive(ops.retry(QUEUE, "a"))
    drive(second.enqueue(submission("a")))
    assert drive(second.answer(0.001)).state == "queued"
    work(storage)
    assert answer(second) == b"a"
    drive(first.close())


@pytest.mark.parametrize("trouble", ["restart", "cut"])
def test_an_answer_that_was_not_heard_is_found(
    redis_server: RedisServer, storage: pgjq.RedisStorage, trouble: str
) -> None:
    waiter = result_waiter(storage, "a")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(answer, waiter)
        if trouble == "restart":
            redis_server.restart()
        else:
            with redis_server.client() as client:
                client.execute_command("CLIENT", "KILL", "TYPE", "pubsub")
        work(storage)
        assert asking.result() == b"a"


def test_a_job_that_a_restart_forgot_is_not_waited_for(tmp_path: Path) -> None:
    """This server writes nothing down."""
    with RedisServer(tmp_path) as server, pgjq.Client(pgjq.RedisStorage(server.url)) as client:
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(client.enqueue_and_wait, QUEUE, "a", None, timeout=60)
            until(lambda: client.get_status(QUEUE, "a") is not None)
            server.restart()
            with pytest.raises(pgjq.JobNotFoundError):
                asking.result()
        assert client.enqueue(QUEUE, "a", None).status == "queued"


@pytest.mark.parametrize("maxmemory", [0, 1])
def test_a_mark_that_a_failover_forgot_is_set_again_by_a_look(
    redis_server: RedisServer, storage: pgjq.RedisStorage, maxmemory: int
) -> None:
    pgjq.Client(storage).enqueue(QUEUE, "a", None)
    records = next(key for key in storage.shared.keys.of_queue(QUEUE) if key.endswith(b":jobs"))
    with redis_server.client() as client, overhearing(redis_server, storage) as said:
        before = client.hgetall(records)
        waiter = result_waiter(storage, "a")
        client.hset(records, mapping=before)
        client.config_set("maxmemory", maxmemory)
        assert drive(waiter.answer(0.001)).state == "queued"
        client.config_set("maxmemory", 0)
        work(storage)
        assert [told[:2] for told in said()] == [[QUEUE, "a"]]
    assert answer(waiter) == b"a"


def test_a_malformed_message_costs_no_subscriber_an_event(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    client, keys = pgjq.Client(storage), storage.shared.keys
    waiter = result_waiter(storage, "a")
    with client.subscribe(QUEUE) as events, redis_server.client() as raw:
        for nonsense in NONSENSE:
            assert raw.publish(keys.results, nonsense) == 1
            assert raw.publish(keys.events, nonsense) == 1
        work(storage)
        assert [next(events).name for _ in range(2)] == ["processing", "completed"]
    assert answer(waiter) == b"a"


def test_ended_jobs_that_were_waited_for_leave_no_trace_of_their_ids_other_lives(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    clock, client, ops = RedisClock(storage), pgjq.Client(storage), storage.operations("sync")
    waiters = []
    for _ in range(3):
        waiters.append(result_waiter(storage, "a"))
        client.cancel(QUEUE, "a")
    assert [drive(waiter.answer(60)).state for waiter in waiters] == ["cancelled"] * 3
    assert (client.get_queue_stats(QUEUE).total, len(client.find_jobs(QUEUE))) == (1, 1)
    clock.advance(3600)
    assert drive(ops.prune()) == 2
    assert (client.get_queue_stats(QUEUE).total, len(client.find_jobs(QUEUE))) == (1, 1)
    client.delete_job(QUEUE, "a")
    drive(ops.prune())
    for waiter in waiters:
        assert drive(waiter._read_state()) is None  # Word of the end may still be in its box.
        drive(waiter.close())
    with redis_server.client() as raw:
        assert [kind for kind in raw.scan_iter() if b":q}" in kind] == []


def test_a_task_that_gives_up_while_it_connects_leaves_nothing_behind(storage: pgjq.RedisStorage) -> None:
    async def give_up() -> None:
        ops = storage.operations("async")
        for _ in range(20):
            expecting = asyncio.create_task(ops.result_waiter(QUEUE, "a"))
            await asyncio.sleep(0)
            expecting.cancel()
            (made,) = await asyncio.gather(expecting, return_exceptions=True)
            if not isinstance(made, BaseException):
                await made.close()  # It was connected already, and quick.
        await ops.close()

    asyncio.run(give_up())
    loops = storage._channels["async"].answers._loops
    until(lambda: not loops.items())
    assert list(loops.items()) == []
