"""The database goes away and comes back: a worker goes on by itself, and knows meanwhile what it no longer owns."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg import sql

from pgjq import AsyncJob, Client, Job, LeasePolicy, NewJob, PostgresStorage, Queue, Retry
from pgjq.blocking import drive
from tests.worker.conftest import Events
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENT = LeasePolicy(lease=60, heartbeat=0.2, reap_interval=0.2)
SHORT = LeasePolicy(lease=1, heartbeat=0.25, reap_interval=0.1)


@pytest.fixture
def proxy(database: str) -> Iterator[Proxy]:
    with Proxy(database) as proxy:
        yield proxy


@pytest.fixture
def far(proxy: Proxy) -> Iterator[PostgresStorage]:
    """A storage behind the network that a test breaks."""
    storage = PostgresStorage(proxy.conninfo)
    yield storage
    storage.close()


def until(holds: Callable[[], Any]) -> Any:
    """Ask until the answer is yes; the suite's time-out is the limit."""
    while not (answer := holds()):
        time.sleep(0.01)
    return answer


def quiet(queue: Queue) -> Events:
    """Collect the errors that an outage makes."""
    return Events(queue, "error")


@pytest.mark.parametrize("way", ["cut", "refuse", "silence"])
def test_a_worker_goes_on_by_itself_after_an_outage(
    proxy: Proxy, far: PostgresStorage, postgres: PostgresStorage, way: str
) -> None:
    """Outcomes reached while the storage was away are kept: each job runs once."""
    running, finish = threading.Semaphore(0), threading.Event()

    def work(job: Job) -> int:
        running.release()
        finish.wait(60)
        return job.attempts

    queue = Queue("q", storage=far, concurrency=3, lease_policy=PATIENT, block_timeout=0.5)
    queue.execute(work)
    errors, completed = quiet(queue), Events(queue, "completed")
    near = Client(postgres)
    near.enqueue_many("q", [(str(n), None) for n in range(3)])
    with queue:
        for _ in range(3):
            assert running.acquire(timeout=60)
        getattr(proxy, way)()
        finish.set()
        if way == "refuse":
            errors.wait()
        near.enqueue("q", "afterwards", None)
        proxy.restore()
        completed.wait(4)
    assert {s.id: (s.state, s.attempts) for s in near.find_jobs("q")} == dict.fromkeys(
        ("0", "1", "2", "afterwards"), ("completed", 1)
    )


@pytest.mark.parametrize("way", ["refuse", "silence"])
@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_a_worker_that_is_cut_off_stops_trusting_its_lease_before_another_gets_the_job(
    proxy: Proxy, far: PostgresStorage, postgres: PostgresStorage, way: str, style: str
) -> None:
    """Whatever the network does, silence included: the signal is set before another worker can claim the job."""
    order: list[str] = []
    started, distrusted, taken = threading.Event(), threading.Event(), threading.Event()

    def hold(job: Job) -> None:
        started.set()
        job.signal.wait(60)
        order.append(str(job.signal.reason))
        distrusted.set()

    async def hold_async(job: AsyncJob) -> None:
        started.set()
        try:
            await asyncio.sleep(60)
        finally:
            order.append(str(job.signal.reason))
            distrusted.set()

    def take(_job: Job) -> None:
        order.append("taken")
        taken.set()

    # Its block timeout is long, so that nothing but the lease makes it look.
    first = Queue("q", storage=far, lease_policy=SHORT)
    first.execute(hold if style == "plain" else hold_async)
    quiet(first)
    second = Queue("q", storage=postgres, lease_policy=SHORT)
    second.execute(take)
    second.enqueue("job", None)
    with first:
        assert started.wait(60)
        getattr(proxy, way)()
        with second:
            assert distrusted.wait(60)
            assert taken.wait(60)
        proxy.restore()
    assert order == ["lease lost", "taken"]


def test_jobs_whose_lease_was_lost_before_they_started_are_not_started(
    proxy: Proxy, far: PostgresStorage, postgres: PostgresStorage
) -> None:
    """A worker that was cut off has jobs in its hands that are no longer its own: another does them."""
    here: list[str] = []
    blocked, go = threading.Event(), threading.Event()

    def work(job: Job) -> None:
        here.append(job.id)
        if job.id == "blocker":
            blocked.set()
            go.wait(60)

    first = Queue("q", storage=far, lease_policy=SHORT)
    first.execute(work)
    quiet(first)
    near = Client(postgres)
    # Quick ones first, from which it learns that it may claim ahead.
    near.enqueue_many("q", [(f"quick {n}", None) for n in range(200)])
    near.enqueue("q", "blocker", None)
    near.enqueue_many("q", [(f"behind {n}", None) for n in range(20)])
    with first:
        assert blocked.wait(60)
        until(lambda: near.get_queue_stats("q").processing > 1)
        proxy.refuse()
        second = Queue("q", storage=postgres, concurrency=2, lease_policy=SHORT)
        second.execute(lambda _job: None)
        with second:
            until(lambda: near.get_queue_stats("q").completed == 221)
        proxy.restore()
        go.set()
        near.enqueue("q", "afterwards", None)
        until(lambda: near.get_queue_stats("q").completed == 222)
    assert not [job_id for job_id in here if job_id.startswith("behind")]


def test_a_handler_that_blocks_the_loop_for_three_leases_keeps_its_job(postgres: PostgresStorage) -> None:
    async def block(job: AsyncJob) -> int:
        time.sleep(SHORT.lease * 3)  # type: ignore[operator]  # noqa: ASYNC251
        return job.attempts

    queue = Queue("q", storage=postgres, lease_policy=SHORT)
    queue.execute(block)
    heard = Events(queue, "completed", "stalled")
    queue.enqueue("job", None)
    rival = Queue("q", storage=postgres, lease_policy=SHORT)
    rival.execute(lambda _job: "stolen")
    with queue:
        until(lambda: queue.get_status("job").state == "processing")  # type: ignore[union-attr]
        with rival:
            assert [(e.name, e.result) for e in heard.wait()] == [("completed", 1)]


def test_a_short_lease_of_one_job_is_kept_beside_long_ones(database: str, postgres: PostgresStorage) -> None:
    """The heartbeat sleeps until the long lease needs it; a job with a lease of its own wakes it up."""
    release = threading.Event()

    def work(job: Job) -> Any:
        if job.id == "long":
            release.wait(60)
        else:
            job.signal.wait(2.5)
        return job.signal.reason or job.attempts

    queue = Queue("q", storage=postgres, concurrency=2, lease_policy=LeasePolicy(reap_interval=0.1))
    queue.execute(work)
    heard = Events(queue, "completed", "stalled")
    queue.enqueue("long", None)
    with queue:
        until(lambda: queue.get_status("long").state == "processing")  # type: ignore[union-attr]
        with psycopg.connect(database) as connection:
            queue.enqueue("short", None, heartbeat_seconds=10, connection=connection)
            connection.execute("""update pgjq.body set options = '{"heartbeat_seconds": 1}' where id = 'short'""")
        events = heard.wait()
        release.set()
    assert [(e.name, e.id, e.result) for e in events] == [("completed", "short", 1)]


def test_heartbeats_go_on_after_a_lease_was_lost(database: str, postgres: PostgresStorage) -> None:
    """One lost job is the end of that job's heartbeats, and of no other's."""
    let_go = threading.Event()

    def work(job: Job) -> Any:
        if job.id == "lost":
            job.signal.wait(60)
            let_go.wait(60)
        else:
            job.signal.wait(3)
        return job.signal.reason or job.attempts

    queue = Queue("q", storage=postgres, concurrency=2, lease_policy=LeasePolicy(1, 0.2, reap_interval=0))
    queue.execute(work)
    heard = Events(queue, "completed")
    queue.enqueue("lost", None)
    with queue, psycopg.connect(database, autocommit=True) as connection:
        until(lambda: queue.get_status("lost").state == "processing")  # type: ignore[union-attr]
        connection.execute("update pgjq.job set lease = lease + 1, locked_until = now() + interval '1 hour'")
        until(lambda: queue.get_status("lost").locked_until)  # type: ignore[union-attr]
        beats = "select last_seen from pgjq.registration"
        seen = connection.execute(beats).fetchone()
        until(lambda: connection.execute(beats).fetchone() != seen)
        queue.enqueue("kept", None)
        (event,) = heard.wait()
        let_go.set()
    assert (event.id, event.result) == ("kept", 1)


@pytest.mark.parametrize("style", ["plain", "coroutine"])
def test_a_worker_survives_a_server_that_was_read_only_for_a_while(
    database: str, postgres: PostgresStorage, style: str
) -> None:
    """As after a failover: connections to the demoted server answer, but take nothing; they must not be kept."""

    async def work_async(job: AsyncJob) -> int:
        await asyncio.sleep(0)
        return job.attempts

    queue = Queue("q", storage=postgres, lease_policy=PATIENT, block_timeout=0.5)
    queue.execute(work_async if style == "coroutine" else lambda job: job.attempts)
    errors, completed = quiet(queue), Events(queue, "completed")
    queue.enqueue("before", None)
    # A worker without work only reads, and would not notice that a job of another worker is about to stall.
    ghost = LeasePolicy(lease=1, heartbeat=None)
    with psycopg.connect(database, autocommit=True) as operator, queue:
        completed.wait(1)
        Client(postgres).enqueue("other", "stalls", None)
        drive(postgres.operations("sync").claim(["other"], worker="ghost", limit=1, policy=ghost))
        set_read_only(operator, "on")
        errors.wait(3)
        set_read_only(operator, "off", keep=True)
        operator.execute("set default_transaction_read_only = off")
        with Client(PostgresStorage(database)) as near:
            near.enqueue("q", "after", None)
            completed.wait(2)
            until(lambda: near.get_queue_stats("q").completed == 2)
            assert near.get_result("q", "after") == 1


def set_read_only(operator: psycopg.Connection[Any], value: str, *, keep: bool = False) -> None:
    """Have new sessions read only, or not; end the old ones, unless they are to be kept."""
    name = operator.info.dbname
    operator.execute(
        sql.SQL("alter database {} set default_transaction_read_only = {}").format(sql.Identifier(name), sql.SQL(value))
    )
    if not keep:
        operator.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


class Unreadable:
    """A serde that writes what it cannot read."""

    def serialize(self, value: Any) -> bytes:
        return repr(value).encode()

    def deserialize(self, data: bytes) -> Any:
        if b"unreadable" in data:
            raise ValueError("unreadable")
        return data.decode()


def test_a_payload_that_cannot_be_read_fails_its_job_and_no_worker(storage: Any) -> None:
    """Also with a subscriber for the failure, whose event would carry the payload."""
    queue = Queue("q", storage=storage, payload_serde=Unreadable())
    queue.execute(lambda job: job.payload)
    failed, completed = Events(queue, "failed"), Events(queue, "completed")
    queue.enqueue_many([("bad", "unreadable")])
    queue.enqueue("worse", "unreadable", max_attempts=1)
    queue.enqueue("good", 1)
    with queue:
        completed.wait()
        failed.wait(2)
    assert queue.get_status("worse").state == "failed"  # type: ignore[union-attr]


def test_an_outcome_that_cannot_be_stored_does_not_block_the_others(
    storage: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever text an exception has, and however long it wants to wait: the next job is settled."""

    def work(job: Job) -> None:
        match job.payload:
            case "nul":
                raise ValueError("a\x00b")
            case "surrogate":
                raise ValueError("\ud800")
            case "far":
                raise Retry(delay=1e300)

    caplog.set_level(logging.CRITICAL, "pgjq")  # The report of a test is UTF-8, which has no surrogates.
    queue = Queue("q", storage=storage)
    queue.execute(work)
    quiet(queue)
    completed = Events(queue, "completed")
    queue.enqueue_many([(kind, kind) for kind in ("nul", "surrogate", "far")])
    queue.enqueue("good", None, priority=-1)
    with queue:
        completed.wait()
    assert [event.id for event in completed.events] == ["good"]


def test_stopping_leaves_no_job_to_time_out(postgres: PostgresStorage) -> None:
    """Whenever it comes: what had finished is settled, and what had not is given back."""
    near = Client(postgres)

    def work(_job: Job) -> None:
        time.sleep(0.0005)

    for n in range(20):
        near.enqueue_many("q", [(f"{n} {m}", None) for m in range(100)])
        queue = Queue("q", storage=postgres, concurrency=8)
        queue.execute(work)
        heard = Events(queue, "completed")
        queue.start()
        heard.wait(1 + n)
        queue.stop(grace=60)
        assert near.get_queue_stats("q").processing == 0


def test_jobs_that_were_claimed_ahead_do_not_expire_before_they_started(postgres: PostgresStorage) -> None:
    """They wait behind a slow one for longer than an attempt may take; that is no attempt of theirs."""
    policy = LeasePolicy(lease=5, heartbeat=1, expire=1, reap_interval=0.2)
    go = threading.Event()

    def work(job: Job) -> int:
        if job.id == "slow":
            go.wait(60)
        return job.attempts

    queue = Queue("q", storage=postgres, lease_policy=policy)
    queue.execute(work)
    completed, failed = Events(queue, "completed"), Events(queue, "failed")
    near = Client(postgres)
    # Quick ones first, from which it learns that it may claim ahead.
    near.enqueue_many("q", [(f"quick {n}", None) for n in range(200)])
    near.enqueue("q", "slow", None, max_attempts=1)
    near.enqueue_many("q", [NewJob(f"behind {n}", None, max_attempts=1) for n in range(20)])
    with queue:
        failed.wait()  # The slow one has expired, and holds its thread nevertheless.
        go.set()
        completed.wait(220)
    assert [e.id for e in failed.events] == ["slow"]
