"""The server is restarted, emptied of scripts, full, demoted, or has forgotten the last second."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.blocking import drive
from pgjq.job import NewJob
from pgjq.job_settings import settings
from pgjq.options import Submission
from pgjq.outcome import Completed, Failing
from pgjq.storage.base import Settlement
from pgjq.storage.workers import Registration
from pgjq.testing import RedisClock
from pgjq.testing.storage.harness import BOOM
from tests.redis_server import MAKES, Make, RedisServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

QUEUE = "mail"
every_mode = pytest.mark.parametrize("mode", ["sync", "async"])


@pytest.fixture(params=MAKES)
def make(request: pytest.FixtureRequest) -> Make:
    """Both: what a server says when something is wrong is not the same in all versions."""
    return request.param


def run(mode: Any, coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine of one mode."""
    return drive(coroutine) if mode == "sync" else asyncio.run(coroutine)


async def aside(mode: Any, call: Callable[[], None]) -> None:
    """Make a call that blocks; the event loop goes on meanwhile, and hears that connections are closed."""
    return call() if mode == "sync" else await asyncio.to_thread(call)


async def enqueue(ops: Any, job_id: str, payload: bytes = b"1", **options: Any) -> str:
    (result,) = await ops.enqueue(QUEUE, [Submission(job_id, payload, settings(NewJob(job_id, None, **options)))])
    return result.status


async def claim(ops: Any, **policy: Any) -> list[Any]:
    return await ops.claim([QUEUE], worker="ann", limit=10, policy=pgjq.LeasePolicy(**policy))


async def settle(ops: Any, job: Any, outcome: Any) -> Any:
    (settled,) = await ops.settle([Settlement(job.lease, outcome)])
    return settled.state


@every_mode
def test_the_next_call_after_a_restart_does_not_notice_it(
    redis_server: RedisServer, storage: pgjq.RedisStorage, mode: Any
) -> None:
    async def case() -> None:
        ops = storage.operations(mode)
        await enqueue(ops, "a", b"before")
        (job,) = await claim(ops)
        await aside(mode, redis_server.restart)
        assert await settle(ops, job, Failing(BOOM)) == "failing"
        (again,) = await claim(ops)
        assert (again.payload, again.attempts) == (b"before", 2)
        await ops.close()

    run(mode, case())


@every_mode
def test_a_server_that_is_away_is_said_to_be(redis_server: RedisServer, storage: pgjq.RedisStorage, mode: Any) -> None:
    async def case() -> None:
        ops = storage.operations(mode)
        await enqueue(ops, "a")
        redis_server.kill()
        with pytest.raises(pgjq.StorageUnavailableError):
            await enqueue(ops, "b")
        with pytest.raises(pgjq.StorageUnavailableError):
            await claim(ops)
        redis_server.start()
        assert [job.lease.id for job in await claim(ops)] == ["a"]
        await ops.close()

    run(mode, case())


@every_mode
def test_a_flushed_script_cache_is_filled_again(
    redis_server: RedisServer, storage: pgjq.RedisStorage, mode: Any
) -> None:
    async def case() -> None:
        ops = storage.operations(mode)
        for job_id in ("a", "b"):
            redis_server.client().script_flush()
            assert await enqueue(ops, job_id) == "queued"
        redis_server.client().script_flush()
        first, second = await claim(ops)
        redis_server.client().script_flush()
        assert await settle(ops, first, Completed(b"1")) == "completed"
        assert await settle(ops, second, Completed(b"1")) == "completed"
        await ops.close()

    run(mode, case())


def contents(server: RedisServer) -> dict[bytes, bytes]:
    client = server.client()
    return {key: client.dump(key) for key in client.scan_iter()}


def test_a_full_server_takes_no_job_writes_nothing_and_lets_those_that_it_has_be_run(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    client, ops = pgjq.Client(storage), storage.operations("sync")
    client.enqueue_many(QUEUE, [(str(n), None) for n in range(4)])
    jobs = drive(claim(ops))
    drive(settle(ops, jobs.pop(), Failing(BOOM)))
    before = contents(redis_server)
    redis_server.client().config_set("maxmemory", 1)
    redis_server.client().script_flush()
    for queue in (QUEUE, "never seen"):
        with pytest.raises(pgjq.StorageError, match="out of memory"):
            client.enqueue(queue, "new", None)
        with pytest.raises(pgjq.StorageError, match="out of memory"):
            client.enqueue_many(queue, [(str(n), None) for n in range(1000)])
    assert contents(redis_server) == before
    assert drive(ops.save_checkpoint(jobs[1].lease, b"page 1"))
    assert drive(ops.heartbeat([job.lease for job in jobs])).lost == []
    policy = pgjq.LeasePolicy()
    assert [j.lease.id for j in drive(ops.claim(["never seen", QUEUE], worker="bob", limit=1, policy=policy))] == ["3"]
    assert client.cancel(QUEUE, jobs[0].lease.id, active=True).status == "processing"
    assert [drive(settle(ops, job, Completed(b"1"))) for job in jobs] == ["cancelled", "completed", "completed"]
    assert not drive(ops.wait_for_work([QUEUE], 0.01))
    assert client.delete_job(QUEUE, "0")
    redis_server.client().config_set("maxmemory", 0)
    assert client.enqueue(QUEUE, "new", None).status == "queued"


def test_a_full_server_is_looked_after(redis_server: RedisServer, storage: pgjq.RedisStorage) -> None:
    """A leader is elected, stalled jobs are reaped and old records pruned, which makes room."""
    clock, ops = RedisClock(storage), storage.operations("sync")
    drive(enqueue(ops, "a"))
    drive(claim(ops))
    redis_server.client().config_set("maxmemory", 1)
    assert [drive(ops.elect("reaper", name, ttl=30)) for name in ("ann", "bob", "ann")] == [True, False, True]
    clock.advance(60)
    assert [job.id for job in drive(ops.reap())] == ["a"]
    assert [job.lease.id for job in drive(claim(ops))] == ["a"]
    drive(ops.resign("reaper", "ann"))
    assert drive(ops.elect("reaper", "bob", ttl=30))
    clock.advance(60)
    drive(ops.reap())
    clock.advance(30 * 86400)
    assert drive(ops.prune()) == 1


@every_mode
def test_a_server_that_was_demoted_is_unavailable_until_it_leads_again(
    redis_server: RedisServer, storage: pgjq.RedisStorage, mode: Any
) -> None:
    async def case() -> None:
        ops = storage.operations(mode)
        await enqueue(ops, "a")
        redis_server.client().replicaof("127.0.0.1", "1")
        with pytest.raises(pgjq.StorageUnavailableError):
            await enqueue(ops, "b")
        redis_server.client().replicaof("NO", "ONE")
        assert await enqueue(ops, "b") == "queued"
        await ops.close()

    run(mode, case())


def test_a_claim_that_a_failover_forgot_does_not_hold_the_job_that_was_claimed_instead(
    tmp_path: Path, make: Make
) -> None:
    """The lease numbers are the same, because the server has forgotten the first; the claims are told apart."""
    with RedisServer(tmp_path, make=make) as server, contextlib.closing(pgjq.RedisStorage(server.url)) as storage:
        ops = storage.operations("sync")
        drive(enqueue(ops, "a"))
        server.client().save()
        (forgotten,) = drive(claim(ops))
        server.restart()
        (current,) = drive(claim(ops))
        assert current.lease.number == forgotten.lease.number
        assert drive(settle(ops, forgotten, Completed(b"late"))) is None
        assert drive(ops.heartbeat([forgotten.lease])).lost == [forgotten.lease]
        assert drive(settle(ops, current, Completed(b"good"))) == "completed"


def test_a_server_whose_clock_was_stepped_back_keeps_the_order(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    ops = storage.operations("sync")
    drive(enqueue(ops, "first"))
    ahead = int((time.time() + 86400) * 1_000_000)
    redis_server.client().hset(storage.shared.keys.of_queue(QUEUE)[0], "seq", ahead)
    drive(enqueue(ops, "second"))
    drive(enqueue(ops, "third"))
    assert [job.lease.id for job in drive(claim(ops))] == ["first", "second", "third"]


def test_time_that_steps_back_neither_loses_nor_doubles_a_job(storage: pgjq.RedisStorage) -> None:
    clock, ops = RedisClock(storage), storage.operations("sync")
    drive(enqueue(ops, "a", delay=10))
    clock.advance(10)
    clock.advance(-3600)
    assert drive(claim(ops)) == []
    clock.advance(3600)
    (job,) = drive(claim(ops, lease=30, heartbeat=10))
    clock.advance(-3600)
    assert drive(ops.reap()) == []
    assert drive(settle(ops, job, Completed(b"1"))) == "completed"
    assert drive(enqueue(ops, "a")) == "completed"


@every_mode
def test_a_subscription_goes_on_after_the_server_was_restarted(
    redis_server: RedisServer, storage: pgjq.RedisStorage, mode: Any
) -> None:
    async def case() -> None:
        ops = storage.operations(mode)
        heard = await ops.subscribe(QUEUE)
        redis_server.restart()
        events: list[Any] = []
        while not events:  # Until it listens again, events are lost.
            await enqueue(ops, f"{time.monotonic_ns()}")
            events = await heard.next(0.05)
        assert {event.name for event in events} == {"queued"}
        await heard.close()
        await ops.close()

    run(mode, case())


@pytest.mark.parametrize("whose", ["ours", "somebody's"])
def test_a_sleeper_hears_of_work_after_its_connection_was_cut(redis_server: RedisServer, whose: str) -> None:
    """It polls once an hour, so nothing but the listener that came back can have woken it."""
    client = redis_server.client()
    storage = pgjq.RedisStorage(redis_server.url) if whose == "ours" else pgjq.RedisStorage(client=client)
    ops, woken = storage.operations("sync"), threading.Event()

    def sleep() -> None:
        drive(ops.wait_for_work([QUEUE], 3600, 3600))
        woken.set()

    sleeper = threading.Thread(target=sleep)
    sleeper.start()
    asleep = storage.shared.keys.of_queue(QUEUE)[0]
    while not redis_server.client().hexists(asleep, "asleep"):
        time.sleep(0.01)
    redis_server.client().client_kill_filter(_type="pubsub")
    drive(enqueue(ops, "a"))
    sleeper.join(60)
    assert woken.is_set()
    storage.close()
    client.close()


def test_nobody_is_told_of_work_while_nobody_sleeps(redis_server: RedisServer, storage: pgjq.RedisStorage) -> None:
    ops = storage.operations("sync")
    assert not drive(ops.wait_for_work([QUEUE], 0.01))
    for job_id in ("a", "b", "c"):
        drive(enqueue(ops, job_id))
    assert redis_server.client().info("commandstats")["cmdstat_publish"]["calls"] == 1


def test_a_batch_is_one_round_trip(redis_server: RedisServer, storage: pgjq.RedisStorage) -> None:
    ops = storage.operations("sync")
    drive(enqueue(ops, "first"))
    drive(claim(ops))  # The worker has introduced itself, and scripts that follow once are known.
    calls: list[int] = []

    def count() -> None:
        stats = redis_server.client().info("commandstats")
        calls.append(sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("evalsha", "eval")))

    for _ in range(2):
        jobs = [Submission(f"{len(calls)}-{n}", b"1", settings(NewJob(None, None))) for n in range(10)]
        count()
        drive(ops.enqueue(QUEUE, jobs))
        count()
        claimed = drive(claim(ops))
        count()
        drive(ops.settle([Settlement(job.lease, Completed(b"1")) for job in claimed]))
        count()
    assert len(claimed) == 10
    assert [after - before for before, after in itertools.pairwise(calls[4:])] == [1, 1, 1]


def test_an_office_lapses_unless_it_is_proved(storage: pgjq.RedisStorage) -> None:
    ops = storage.operations("sync")
    assert drive(ops.elect("reaper", "ann", ttl=0.05))
    while not drive(ops.elect("reaper", "bob", ttl=30)):
        time.sleep(0.01)
    assert not drive(ops.elect("reaper", "ann", ttl=0.05))
    drive(ops.resign("reaper", "ann"))
    assert drive(ops.elect("reaper", "bob", ttl=30))


def test_expired_results_give_their_memory_back_without_being_pruned(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    clock, ops = RedisClock(storage), storage.operations("sync")
    drive(enqueue(ops, "a", result_ttl=10))
    drive(settle(ops, drive(claim(ops))[0], Completed(b"x" * 100)))
    outcomes = storage.shared.keys.of_queue(QUEUE)[11]
    assert redis_server.client().hlen(outcomes) == 1
    clock.advance(10)
    drive(enqueue(ops, "b"))
    assert redis_server.client().hlen(outcomes) == 0
    assert drive(ops.get(QUEUE, ["a"]))["a"].state == "completed"


def test_forgotten_jobs_leave_no_trace(redis_server: RedisServer, storage: pgjq.RedisStorage) -> None:
    clock, ops = RedisClock(storage), storage.operations("sync")
    for job_id, options in {"a": {}, "b": {"retention_seconds": 5}, "c": {"delay": 50}, "d": {"result_ttl": 1}}.items():
        drive(enqueue(ops, job_id, **options))
    (first, *_) = drive(claim(ops))
    drive(ops.save_checkpoint(first.lease, b"page 1"))
    drive(settle(ops, first, Failing(BOOM)))
    drive(settle(ops, drive(claim(ops))[0], Completed(b"1")))
    clock.advance(120)
    drive(ops.reap())
    clock.advance(30 * 86400)
    while drive(ops.prune()):
        pass
    assert drive(ops.stats(QUEUE)).total == 0
    assert {key for key in redis_server.client().scan_iter() if b"mail" in key} == set()
    assert not redis_server.client().exists(storage.shared.keys.queues)
    assert drive(enqueue(ops, "a")) == "queued"
    assert redis_server.client().smembers(storage.shared.keys.queues) == {QUEUE.encode()}


def test_a_queue_that_fell_off_the_list_is_back_when_its_worker_is_seen(
    redis_server: RedisServer, storage: pgjq.RedisStorage
) -> None:
    ops = storage.operations("sync")
    drive(enqueue(ops, "a"))
    drive(claim(ops))
    redis_server.client().delete(*storage.shared.keys.workers)  # The list of queues is one of them.
    assert drive(ops.next_deadline()) is None
    drive(ops.worker_seen(Registration("1", "ann", (QUEUE,), 10.0)))
    assert drive(ops.next_deadline()) is not None


def test_a_queue_stays_on_the_list_if_it_is_pruned_while_its_first_job_arrives(
    redis_storage: pgjq.RedisStorage,
) -> None:
    client, over = pgjq.Client(redis_storage), threading.Event()

    def prune() -> None:
        while not over.is_set():
            drive(redis_storage.operations("sync").prune())

    names = [f"q{n:03}" for n in range(100)]
    pruner = threading.Thread(target=prune)
    pruner.start()
    for name in names:
        client.enqueue(name, "a", None)
    over.set()
    pruner.join()
    assert drive(redis_storage.operations("sync").queue_names()) == names
