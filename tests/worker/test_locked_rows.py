"""Another transaction locks rows that a worker needs: this costs the job that is locked, and no other one."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import AsyncJob, AsyncQueue, Client, Job, LeaseLostError, LeasePolicy, PostgresStorage, Queue, Worker
from pgjq.blocking import drive
from tests.worker.conftest import until

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from datetime import datetime

LIMIT = 60.0
BRIEF = LeasePolicy(lease=1, heartbeat=0.2, reap_interval=0.2)
LONG = LeasePolicy(lease=60, heartbeat=0.2, reap_interval=0.2)
JOB = "select from pgjq.job as j join pgjq.body as b using (queue_id, seq) where b.id = %s for update of j"
RECORD = "select from pgjq.registration join pgjq.worker as w on w.id = worker_id for update"


@contextmanager
def locked(conninfo: str, statement: str, *params: str) -> Generator[None]:
    """Hold row locks inside a block, as an operator's open transaction does."""
    with psycopg.connect(conninfo) as connection:
        assert connection.execute(statement.encode(), params).rowcount == 1
        yield
        connection.rollback()


class Held:
    """Handlers that run until their test lets them go, or until their signal is set, and return why."""

    def __init__(self) -> None:
        self.running = threading.Semaphore(0)
        self.finish = threading.Event()
        self.aborted: dict[str, str | None] = {}

    def handle(self, job: Job) -> str | None:
        self.running.release()
        until(lambda: self.finish.is_set() or job.signal.aborted)
        return self._note(job)

    async def handle_async(self, job: AsyncJob) -> str | None:
        self.running.release()
        try:
            while not self.finish.is_set():  # noqa: ASYNC110  (it is set by another thread)
                await asyncio.sleep(0.005)
        finally:
            self._note(job)
        return job.signal.reason

    def _note(self, job: Any) -> str | None:
        if job.signal.aborted:
            self.aborted.setdefault(job.id, job.signal.reason)
        return job.signal.reason

    def wait(self, count: int) -> None:
        for _ in range(count):
            assert self.running.acquire(timeout=LIMIT)


def locked_until(client: Client, job_id: str) -> datetime:
    status = client.get_status("q", job_id)
    assert status is not None
    assert status.locked_until is not None, status
    return status.locked_until


def wait_for_renewals(client: Client, job_id: str, moved: float) -> None:
    """Wait until the lease of a job ends so many seconds later than it did."""
    first = locked_until(client, job_id)
    until(lambda: (locked_until(client, job_id) - first).total_seconds() >= moved)


@pytest.fixture(params=["sync", "async"])
def held(request: pytest.FixtureRequest) -> tuple[Held, Callable[..., Worker]]:
    """Handlers, and how to make a worker that runs them with that lease policy."""
    handlers = Held()

    def make(storage: PostgresStorage, policy: LeasePolicy) -> Worker:
        kind: Any = Queue if request.param == "sync" else AsyncQueue
        queue = kind("q", storage=storage, lease_policy=policy, block_timeout=30, max_attempts=3)
        queue.execute(handlers.handle if request.param == "sync" else handlers.handle_async)
        return Worker(queue, concurrency=4)

    return handlers, make


def test_a_locked_job_loses_its_lease_and_no_other_job_does(
    database: str, postgres: PostgresStorage, held: tuple[Held, Callable[..., Worker]]
) -> None:
    handlers, make = held
    client = Client(postgres)
    client.enqueue_many("q", [(name, None) for name in ("locked", "one", "other")])
    with make(postgres, BRIEF):
        handlers.wait(3)
        with locked(database, JOB, "locked"):
            wait_for_renewals(client, "one", 2)
            until(lambda: "locked" in handlers.aborted)
            wait_for_renewals(client, "other", 1)
        handlers.finish.set()
        until(lambda: client.get_queue_stats("q").completed == 3)
    assert handlers.aborted == {"locked": "lease lost"}
    assert [client.get_status("q", name).attempts for name in ("one", "other")] == [1, 1]  # type: ignore[union-attr]


def test_a_locked_job_does_not_delay_the_outcomes_of_others(
    database: str, postgres: PostgresStorage, held: tuple[Held, Callable[..., Worker]]
) -> None:
    handlers, make = held
    client = Client(postgres)
    client.enqueue_many("q", [(name, None) for name in ("one", "locked", "other")])
    with make(postgres, LONG):
        handlers.wait(3)
        with locked(database, JOB, "locked"):
            handlers.finish.set()
            until(lambda: client.get_queue_stats("q").completed == 2)
            client.enqueue("q", "later", None)
            until(lambda: client.get_queue_stats("q").completed == 3)
            assert locked_until(client, "locked")
        until(lambda: client.get_queue_stats("q").completed == 4)
    assert {s.id: s.attempts for s in client.find_jobs("q")} == dict.fromkeys(("one", "locked", "other", "later"), 1)


def test_a_job_that_was_locked_for_a_moment_is_renewed_after_that(
    database: str, postgres: PostgresStorage, held: tuple[Held, Callable[..., Worker]]
) -> None:
    handlers, make = held
    client = Client(postgres)
    client.enqueue_many("q", [("locked", None), ("other", None)])
    with make(postgres, LONG):
        handlers.wait(2)
        with locked(database, JOB, "locked"):
            before = locked_until(client, "locked")
            wait_for_renewals(client, "other", 0.5)
            assert locked_until(client, "locked") == before
        until(lambda: locked_until(client, "locked") > before)
        handlers.finish.set()
        until(lambda: client.get_queue_stats("q").completed == 2)
    assert handlers.aborted == {}


@pytest.mark.parametrize("style", ["sync", "async"])
def test_a_handler_that_renews_its_lease_gets_it_when_the_lock_is_gone(
    database: str, postgres: PostgresStorage, style: str
) -> None:
    started, go_on, asking = threading.Event(), threading.Event(), threading.Event()

    def renew(job: Job) -> None:
        started.set()
        go_on.wait(LIMIT)
        asking.set()
        job.heartbeat()

    async def renew_async(job: AsyncJob) -> None:
        started.set()
        await asyncio.to_thread(go_on.wait, LIMIT)
        asking.set()
        await job.heartbeat()

    make: Any = Queue if style == "sync" else AsyncQueue
    queue = make("q", storage=postgres, lease_policy=LeasePolicy(lease=60, heartbeat=None), max_attempts=1)
    queue.execute(renew if style == "sync" else renew_async)
    client = Client(postgres)
    client.enqueue("q", "a", None)
    with Worker(queue, concurrency=1):
        assert started.wait(LIMIT)
        with locked(database, JOB, "a"):
            go_on.set()
            assert asking.wait(LIMIT)
            assert locked_until(client, "a")
        until(lambda: client.get_queue_stats("q").completed == 1)


@pytest.mark.parametrize("style", ["sync", "async"])
def test_a_handler_cannot_renew_a_lease_whose_job_stays_locked(
    database: str, postgres: PostgresStorage, style: str
) -> None:
    """The lease is not trusted any longer than without the heartbeat."""
    started, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []
    refused = threading.Event()

    def note(error: LeaseLostError) -> None:
        raised.append(error)
        refused.set()

    def renew(job: Job) -> None:
        started.set()
        go_on.wait(LIMIT)
        try:
            job.heartbeat()
        except LeaseLostError as error:
            note(error)
            raise

    async def renew_async(job: AsyncJob) -> None:
        started.set()
        go_on.wait(LIMIT)
        try:
            await job.heartbeat()
        except LeaseLostError as error:
            note(error)
            raise
        except asyncio.CancelledError:  # The watch over leases may be first.
            assert job.signal.reason == "lease lost"
            refused.set()
            raise

    make: Any = Queue if style == "sync" else AsyncQueue
    policy = LeasePolicy(lease=2, heartbeat=None, reap_interval=0)
    queue = make("q", storage=postgres, lease_policy=policy, max_attempts=1)
    queue.execute(renew if style == "sync" else renew_async)
    client = Client(postgres)
    client.enqueue("q", "a", None)
    with Worker(queue, concurrency=1, grace=0):
        assert started.wait(LIMIT)
        with locked(database, JOB, "a"):
            go_on.set()
            assert refused.wait(LIMIT)
    assert style == "async" or raised


def test_a_locked_worker_record_keeps_no_lease_from_being_renewed(
    database: str, postgres: PostgresStorage, held: tuple[Held, Callable[..., Worker]]
) -> None:
    handlers, make = held
    client = Client(postgres)
    client.enqueue("q", "a", None)
    worker = make(postgres, BRIEF)
    worker.queues[0].on("error", lambda _error: None)  # The record could not be written.
    with worker:
        handlers.wait(1)
        until(client.get_workers)
        with locked(database, RECORD):
            wait_for_renewals(client, "a", 3)
        handlers.finish.set()
        until(lambda: client.get_queue_stats("q").completed == 1)
    assert handlers.aborted == {}


def test_a_locked_job_that_cannot_start_keeps_no_lease_from_being_renewed(
    database: str, postgres: PostgresStorage
) -> None:
    """The loop is blocked by one job, so the heartbeat's thread gives the other one back, and finds it locked."""
    client = Client(postgres)
    reasons: list[str | None] = []

    async def block_the_loop(job: AsyncJob) -> None:
        if not reasons:
            with locked(database, JOB, "second"):
                wait_for_renewals(client, "first", 3)
            reasons.append(job.signal.reason)

    client.enqueue_many("q", [("first", None), ("second", None)])
    queue = AsyncQueue("q", storage=postgres, lease_policy=BRIEF, max_attempts=3)
    queue.execute(block_the_loop)
    queue.on("error", lambda _error: None)  # The job could not be given back.
    with Worker(queue, concurrency=2):
        until(lambda: client.get_queue_stats("q").completed == 2)
    assert reasons == [None]


def test_a_heartbeat_skips_what_is_locked_and_says_so(database: str, postgres: PostgresStorage) -> None:
    client, ops = Client(postgres), postgres.operations("sync")
    client.enqueue_many("q", [(name, None) for name in ("locked", "free")])
    jobs = {job.lease.id: job for job in drive(ops.claim(["q"], worker="w", limit=2, policy=LONG))}
    leases = [jobs[name].lease for name in ("locked", "free")]
    client.cancel("q", "locked", active=True)
    before = {name: locked_until(client, name) for name in ("locked", "free")}
    with locked(database, JOB, "locked"):
        pulse = drive(ops.heartbeat(leases))
        assert (pulse.lost, pulse.skipped, pulse.cancel_requested) == ([], [leases[0]], [leases[0]])
        assert locked_until(client, "locked") == before["locked"]
        assert locked_until(client, "free") > before["free"]
    pulse = drive(ops.heartbeat(leases))
    assert (pulse.lost, list(pulse.skipped), pulse.cancel_requested) == ([], [], [leases[0]])
    assert locked_until(client, "locked") > before["locked"]
