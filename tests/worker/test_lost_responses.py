"""The answer to a statement is lost: the worker finds out what the server did, and acts on that."""

from __future__ import annotations

import asyncio
import threading
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pgjq import AsyncJob, Client, Discard, Job, LeasePolicy, PostgresStorage, Queue, RedisStorage, Retry, Worker
from pgjq.storage.redis.scripts import script
from tests.redis.proxy import RedisProxy
from tests.worker.conftest import Events
from tests.worker.proxy import Half, Proxy, Trap

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.storage.base import Storage

POLICY = LeasePolicy(lease=60, heartbeat=20, reap_interval=20)
SETTLE = b"pgjq.settle("
CLAIM = b"pgjq.claim("
HALVES: tuple[Half, ...] = ("unsent", "unanswered")


def complete(job: Job) -> int:
    return job.attempts


async def complete_async(job: AsyncJob) -> int:
    await asyncio.sleep(0)
    return job.attempts


def fail(_job: Job) -> None:
    raise Discard("no use")


def fail_once(job: Job) -> int:
    if job.attempts == 1:
        raise ValueError("boom")
    return job.attempts


def fail_for_now(_job: Job) -> None:
    raise Retry(delay=3600)


ENDINGS: dict[str, tuple[Callable[..., Any], list[str]]] = {
    "completed": (complete, ["completed"]),
    "completed by a coroutine": (complete_async, ["completed"]),
    "failed": (fail, ["failed"]),
    "failing": (fail_for_now, ["failing"]),
    "failing, and claimed again at once": (fail_once, ["failing", "completed"]),
}
endings = pytest.mark.parametrize("ending", ENDINGS)


@contextmanager
def behind(trap: Trap, database: str) -> Generator[PostgresStorage]:
    """A storage on PostgreSQL behind a proxy with a trap."""
    with Proxy(database, trap) as proxy, closing(PostgresStorage(proxy.conninfo)) as storage:
        yield storage
    assert trap.sprung.is_set()


@contextmanager
def behind_redis(name: str, half: Half, url: str, prefix: str) -> Generator[RedisStorage]:
    """A storage on Redis behind a proxy that loses the first call of a script, or its answer."""
    trap = Trap(script(name).sha.encode(), half)
    with redis.Redis.from_url(url) as client:
        client.script_load(script(name).source)
    with RedisProxy(url, trap) as proxy, closing(RedisStorage(proxy.url, prefix=prefix)) as storage:
        yield storage
    assert trap.sprung.is_set()


def run(storage: Storage, near: Client, handler: Callable[..., Any], expected: list[str]) -> None:
    """Run one job through a storage that loses an answer; the events of its endings are published once."""
    queue = Queue("q", storage=storage, lease_policy=POLICY, block_timeout=30)
    queue.execute(handler)
    errors, ended = (
        Events(queue, "error"),
        Events(queue, "completed", "failing", "failed", "stalled", "queued"),
    )
    near.enqueue("q", "job", None)
    with queue:
        ended.wait(len(expected))
        errors.wait()
    assert [event.name for event in ended.events] == expected
    status = near.get_status("q", "job")
    assert status is not None
    assert (status.state, status.attempts, status.stalled) == (expected[-1], len(expected), 0)


@endings
@pytest.mark.parametrize("half", HALVES)
def test_a_settlement_whose_answer_was_lost_is_a_settlement(
    database: str, postgres: PostgresStorage, ending: str, half: Half, caplog: pytest.LogCaptureFixture
) -> None:
    with behind(Trap(SETTLE, half), database) as storage:
        run(storage, Client(postgres), *ENDINGS[ending])
    assert "outcome refused: the lease is lost" not in caplog.messages


@endings
@pytest.mark.parametrize("half", HALVES)
def test_a_settlement_whose_answer_was_lost_is_a_settlement_on_redis(
    redis_url: str, redis_storage: RedisStorage, ending: str, half: Half, caplog: pytest.LogCaptureFixture
) -> None:
    with behind_redis("settle", half, redis_url, redis_storage.prefix) as storage:
        run(storage, Client(redis_storage), *ENDINGS[ending])
    assert "outcome refused: the lease is lost" not in caplog.messages


def run_once(storage: Storage, near: Client, names: tuple[str, ...] = ("q",)) -> None:
    """Run jobs that have one attempt, through a storage that loses a claim or its answer, once."""
    queues = [Queue(name, storage=storage, lease_policy=POLICY, block_timeout=30) for name in names]
    heard = [Events(queue, "completed", "failing", "failed", "stalled") for queue in queues]
    errors = [Events(queue, "error") for queue in queues]
    for queue in queues:
        queue.execute(complete)
        near.enqueue(queue.name, "job", None, max_attempts=1)
    with Worker(*queues, concurrency=4):
        for ended in heard:
            ended.wait()
        for told in errors:
            told.wait()
    for name, ended in zip(names, heard, strict=True):
        assert [(event.name, event.result) for event in ended.events] == [("completed", 1)]
        status = near.get_status(name, "job")
        assert status is not None
        assert (status.state, status.attempts, status.lease) == ("completed", 1, 1)


@pytest.mark.parametrize("half", HALVES)
def test_a_claim_whose_answer_was_lost_is_taken_over(database: str, postgres: PostgresStorage, half: Half) -> None:
    with behind(Trap(CLAIM, half), database) as storage:
        run_once(storage, Client(postgres))


@pytest.mark.parametrize("names", [("q",), ("q", "other")])
@pytest.mark.parametrize("half", HALVES)
def test_a_claim_whose_answer_was_lost_is_taken_over_on_redis(
    redis_url: str, redis_storage: RedisStorage, half: Half, names: tuple[str, ...]
) -> None:
    with behind_redis("claim", half, redis_url, redis_storage.prefix) as storage:
        run_once(storage, Client(redis_storage), names)


@pytest.mark.parametrize("name", ["ann", "bob"])
def test_a_worker_takes_over_no_claim_of_another_worker(database: str, postgres: PostgresStorage, name: str) -> None:
    """Not even of one that has its name: the other one's run goes on, and is the only one."""
    running, finish = threading.Event(), threading.Event()

    def hold(job: Job) -> int:
        running.set()
        finish.wait(60)
        return job.lease

    near = Client(postgres)
    other = Queue("q", storage=postgres, worker_id="ann", lease_policy=POLICY, block_timeout=30)
    other.execute(hold)
    ended = Events(other, "completed", "failed")
    near.enqueue("q", "held", None, max_attempts=1)
    with other:
        assert running.wait(60)
        with behind(Trap(CLAIM, "unanswered"), database) as storage:
            first = Queue("q", storage=storage, worker_id=name, lease_policy=POLICY, block_timeout=30)
            started: list[str] = []
            first.execute(lambda job: started.append(job.id))
            taken, errors = Events(first, "completed"), Events(first, "error")
            near.enqueue("q", "lost", None, max_attempts=1)
            with first:
                taken.wait()
                errors.wait()
            assert started == ["lost"]
        finish.set()
        assert [(event.name, event.result) for event in ended.wait()] == [("completed", 1)]


def test_a_worker_that_stops_leaves_no_job_of_a_lost_claim_behind(database: str, postgres: PostgresStorage) -> None:
    """It stops as soon as the answer is lost: the job is given back uncounted, unless it has run meanwhile."""
    trap, near = Trap(CLAIM, "unanswered"), Client(postgres)
    near.enqueue("q", "job", None, max_attempts=1)
    with behind(trap, database) as storage:
        queue = Queue("q", storage=storage, lease_policy=POLICY, block_timeout=30)
        queue.execute(complete)
        queue.on("error", lambda _error: None)
        queue.start()
        assert trap.sprung.wait(60)
        queue.stop(grace=0)
    status = near.get_status("q", "job")
    assert status is not None
    assert (status.state, status.attempts) in (("queued", 0), ("completed", 1))
