"""The answer to a statement is lost: the worker finds out what the server did, and acts on that."""

from __future__ import annotations

import asyncio
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest
import redis

from pgjq import AsyncJob, Client, Discard, Job, LeasePolicy, PostgresStorage, Queue, RedisStorage, Retry
from pgjq.storage.redis.scripts import script
from tests.redis.proxy import RedisProxy
from tests.worker.conftest import Heard
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
    errors, ended = Heard(queue, "error"), Heard(queue, "completed", "failing", "failed", "stalled", "queued")
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
