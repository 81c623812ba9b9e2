"""`job.transaction()`: a handler's writes and its job's completion are one commit, however it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine
from sqlalchemy.orm import sessionmaker
from sqlalchemy.pool import NullPool

import pgjq
from pgjq import AsyncJob, Client, Job, LeaseLostError, LeasePolicy, PostgresStorage, Queue
from tests.worker.conftest import Events
from tests.worker.proxy import Half, Proxy, Trap
from tests.worker.worker_processes import ForkedProcesses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgjq import JobStatus

KINDS = ["psycopg", "psycopg async", "sqlalchemy", "sqlalchemy async"]
LOCK = 4711
NOTE = "insert into effect (id, lease) values (%s, %s)"
ALCHEMY_NOTE = text("insert into effect (id, lease) values (:id, :lease)")
# A settlement is recognised by what no other statement of a handler's transaction says.
SETTLE = b"pgjq.settle"
WRITE = b"into effect"
SLOW_COMMIT = b"""
create function slow_commit() returns trigger language plpgsql
as 'begin perform pg_advisory_xact_lock(4711); return null; end';
create constraint trigger slow after insert on effect deferrable initially deferred
for each row execute function slow_commit();
"""


class Table:
    """The effects in the database, and what else it knows."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def ask(self, question: str, *params: Any) -> list[Any]:
        return self._connection.execute(question.encode(), params or None).fetchall()

    def job_transaction(self) -> list[tuple[str, int]]:
        return self.ask("select id, lease from effect order by id, lease")

    def take_away(self) -> None:
        """Take the job back from its worker, as a reaper does."""
        self._connection.execute("update pgjq.job set locked_until = now() - interval '1 second' where state = 1")


@pytest.fixture
def table(database: str) -> Iterator[Table]:
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table effect (id text not null, lease integer not null)")
        connection.execute("create table told (id text not null, lease integer not null, error text)")
        yield Table(connection)
        connection.execute("drop table effect, told")


def until(holds: Callable[[], Any]) -> Any:
    """Ask until the answer is yes; the suite's time-out is the limit."""
    while not (answer := holds()):
        time.sleep(0.01)
    return answer


def writer(kind: str, conninfo: str, inside: Callable[[Any], Any] = lambda _job: None) -> Callable[..., Any]:
    """Make a handler of a kind: it notes its job in a transaction, where `inside` is called as well."""
    url = "postgresql+psycopg://"

    def plain(job: Job) -> str:
        with job.transaction() as connection:
            connection.execute(NOTE, [job.id, job.lease])
            inside(job)
        return "not stored"

    async def coroutine(job: AsyncJob) -> str:
        async with job.transaction() as connection:
            await connection.execute(NOTE, [job.id, job.lease])
            inside(job)
        return "not stored"

    def alchemy(job: Job) -> str:
        engine = create_engine(url, creator=lambda: psycopg.connect(conninfo), poolclass=NullPool)
        with job.transaction(sessionmaker(engine)) as session:
            session.execute(ALCHEMY_NOTE, {"id": job.id, "lease": job.lease})
            inside(job)
        return "not stored"

    async def alchemy_async(job: AsyncJob) -> str:
        async def connect() -> Any:
            return await psycopg.AsyncConnection.connect(conninfo)

        engine = create_async_engine(url, async_creator=connect, poolclass=NullPool)
        async with job.transaction(async_sessionmaker(engine)) as session:
            await session.execute(ALCHEMY_NOTE, {"id": job.id, "lease": job.lease})
            inside(job)
        return "not stored"

    async def another_driver(job: AsyncJob) -> str:
        known = conninfo_to_dict(conninfo)

        async def connect() -> Any:
            return await asyncpg.connect(
                host=known["host"], port=known["port"], user=known["user"], database=known["dbname"], ssl=False
            )

        engine = create_async_engine("postgresql+asyncpg://", async_creator=connect, poolclass=NullPool)
        async with job.transaction(async_sessionmaker(engine)) as session:
            await session.execute(ALCHEMY_NOTE, {"id": job.id, "lease": job.lease})
            inside(job)
        return "not stored"

    return {
        "psycopg": plain,
        "psycopg async": coroutine,
        "sqlalchemy": alchemy,
        "sqlalchemy async": alchemy_async,
        "asyncpg async": another_driver,
    }[kind]


def worker(storage: PostgresStorage, handler: Callable[..., Any], concurrency: int = 1, **policy: Any) -> Queue:
    queue = Queue(
        "q", storage=storage, concurrency=concurrency, lease_policy=LeasePolicy(**{"reap_interval": 0.1, **policy})
    )
    queue.execute(handler)
    queue.on("error", lambda _error: None)
    return queue


@pytest.mark.parametrize("kind", KINDS)
def test_the_result_is_what_the_block_set(database: str, postgres: PostgresStorage, table: Table, kind: str) -> None:
    def inside(job: Any) -> None:
        job.result = {"wrote": job.id}

    queue = worker(postgres, writer(kind, database, inside))
    completed = Events(queue, "completed")
    queue.enqueue("job", None)
    with queue:
        (event,) = completed.wait()
    status = queue.get_status("job")
    assert status is not None
    assert (status.state, status.result, status.attempts) == ("completed", {"wrote": "job"}, 1)
    assert event.result == {"wrote": "job"}
    assert table.job_transaction() == [("job", 1)]


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_rolls_the_writes_back_and_the_job_is_retried(
    database: str, postgres: PostgresStorage, table: Table, kind: str
) -> None:
    def inside(job: Any) -> None:
        if job.attempts < 3:
            raise KeyError(job.attempts)

    queue = worker(postgres, writer(kind, database, inside))
    heard = Events(queue, "failing", "completed")
    queue.enqueue("job", None, max_attempts=3)
    with queue:
        events = heard.wait(3)
    assert [e.name for e in events] == ["failing", "failing", "completed"]
    assert type(events[0].error) is KeyError
    assert table.job_transaction() == [("job", 3)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_result_that_cannot_be_written_leaves_nothing_behind(
    database: str, postgres: PostgresStorage, table: Table, kind: str
) -> None:
    def inside(job: Any) -> None:
        job.result = object()

    queue = worker(postgres, writer(kind, database, inside))
    failed = Events(queue, "failed")
    queue.enqueue("job", None, max_attempts=1)
    with queue:
        failed.wait()
    assert table.job_transaction() == []


@pytest.mark.parametrize("first", ["committed", "rolled back"])
def test_a_run_has_one_block_at_most(postgres: PostgresStorage, table: Table, first: str) -> None:
    refusals: list[str] = []

    def twice(job: Job) -> None:
        with contextlib.suppress(KeyError), job.transaction() as connection:
            connection.execute(NOTE, [job.id, job.lease])
            if first == "rolled back":
                raise KeyError
        try:
            with job.transaction() as connection:
                connection.execute(NOTE, [job.id, job.lease])
        except pgjq.PgjqError as error:
            refusals.append(str(error))
            raise

    queue = worker(postgres, twice)
    ended = Events(queue, "completed", "failed")
    queue.enqueue("job", None, max_attempts=1)
    with queue:
        (event,) = ended.wait()
        until(lambda: refusals)
    assert "one transaction() block" in refusals[0]
    assert event.name == ("completed" if first == "committed" else "failed")
    assert table.job_transaction() == ([("job", 1)] if first == "committed" else [])


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_committed_when_the_lease_was_lost_inside_the_block(
    database: str, postgres: PostgresStorage, table: Table, kind: str
) -> None:
    """The second worker completes the job while the first is still inside; the first learns so when it leaves."""
    inside, leave = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def wait(job: Any) -> None:
        if job.attempts == 1:
            inside.set()
            leave.wait(60)

    handler = writer(kind, database, wait)

    def watching(job: Job) -> Any:
        try:
            return handler(job)
        except BaseException as error:
            raised.append(error)
            raise

    async def watching_async(job: AsyncJob) -> Any:
        try:
            return await handler(job)
        except BaseException as error:
            raised.append(error)
            raise

    # It never renews its lease by itself, and never reaps: so the loss is for the block to find.
    first = worker(postgres, watching_async if "async" in kind else watching, heartbeat=None, reap_interval=0)
    second_storage = PostgresStorage(database)
    second = worker(second_storage, writer("psycopg", database))
    completed = Events(second, "completed")
    first.enqueue("job", None)
    with first:
        assert inside.wait(60)
        table.take_away()
        with second:
            completed.wait()
        leave.set()
        until(lambda: raised)
    second_storage.close()
    assert isinstance(raised[0], LeaseLostError)
    assert table.job_transaction() == [("job", 2)]
    status = first.get_status("job")
    assert status is not None
    assert (status.state, status.lease) == ("completed", 2)


def test_a_job_that_was_asked_to_end_is_cancelled_and_its_writes_are_not_kept(
    postgres: PostgresStorage, table: Table
) -> None:
    """The wish came before the block's end: the job is not completed, so what would commit with that does not."""

    def work(job: Job) -> None:
        with job.transaction() as connection:
            connection.execute(NOTE, [job.id, job.lease])
            assert client.cancel("q", "job", active=True).status == "processing"

    client = Client(postgres)
    queue = worker(postgres, work)
    queue.enqueue("job", None)
    with queue:
        until(lambda: client.get_status("q", "job").state not in ("queued", "processing"))  # type: ignore[union-attr]
    assert client.get_status("q", "job").state == "cancelled"  # type: ignore[union-attr]
    assert table.job_transaction() == []


def freeze(pid: int) -> None:
    """Stop a process, and wait until all of its threads have stopped."""
    os.kill(pid, signal.SIGSTOP)
    tasks = Path(f"/proc/{pid}/task")
    until(lambda: all(" T " in (task / "stat").read_text().rpartition(")")[2] for task in tasks.iterdir()))


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whether a process has stopped")
def test_a_process_that_slept_past_its_lease_inside_the_block_writes_nothing(database: str, table: Table) -> None:
    """Stopped in the middle, it wakes up when another process has finished the job: one effect, and it is told so.

    It sleeps with a row of the user's locked. The reaper that takes its job back ends its transaction as well.
    """
    storage = PostgresStorage(database)
    client = Client(storage)
    with ForkedProcesses() as processes, psycopg.connect(database, autocommit=True) as gate:
        gate.execute("select pg_advisory_lock(%s)", [LOCK])
        gate.execute("create table account (id integer)")
        gate.execute("insert into account values (1)")
        client.enqueue("q", "job", {"lock": LOCK, "conninfo": database}, max_attempts=100)
        first = processes.start(database, "linger")
        until(
            lambda: table.ask("select from pg_locks where locktype = 'advisory' and objid = %s and not granted", LOCK)
        )
        freeze(first)
        gate.execute("select pg_advisory_unlock(%s)", [LOCK])
        processes.start(database, "linger")
        assert until(lambda: ended(client)).state == "completed"
        table.ask("select from account for update")
        os.kill(first, signal.SIGCONT)
        until(lambda: table.ask("select from told"))
        gate.execute("drop table account")
    storage.close()
    ((_, lease),) = table.job_transaction()
    assert lease > 1
    assert table.ask("select lease, error from told order by lease limit 1") == [(1, "LeaseLostError")]


@pytest.mark.skipif(sys.platform != "linux", reason="/proc tells whether a process has stopped")
def test_a_process_that_slept_before_its_commit_keeps_the_job_for_a_pause_only(database: str, table: Table) -> None:
    """It has completed the job in a transaction that it does not commit, so the row is locked, and reapers skip it."""
    storage = PostgresStorage(database)
    client = Client(storage)
    with (
        ForkedProcesses() as processes,
        Proxy(database, Trap(b"COMMIT", "unsent", after=b"into effect", hold=True)) as proxy,
    ):
        client.enqueue("q", "job", None, max_attempts=100)
        first = processes.start(proxy.conninfo, "transact")
        proxy.trap.sprung.wait()
        freeze(first)
        processes.start(database, "transact")
        assert until(lambda: ended(client)).state == "completed"
        os.kill(first, signal.SIGCONT)
    storage.close()
    ((_, lease),) = table.job_transaction()
    assert lease > 1


def ended(client: Client) -> JobStatus | None:
    status = client.get_status("q", "job")
    return status if status and status.state in ("completed", "failed", "cancelled") else None


def run_into(trap: Trap, database: str, kind: str) -> JobStatus:
    """Run one job behind a proxy with a trap, until it is completed, and told so once."""
    with Proxy(database, trap) as proxy, Client(PostgresStorage(database)) as near:
        storage = PostgresStorage(proxy.conninfo)
        queue = worker(storage, writer(kind, proxy.conninfo), lease=2, heartbeat=0.5)
        ended = Events(queue, "completed", "failed")
        near.enqueue("q", "job", None, max_attempts=50)
        with queue:
            events = ended.wait()
        storage.close()
        status = near.get_status("q", "job")
    assert trap.sprung.is_set()
    assert [e.name for e in events] == ["completed"]
    assert status is not None
    assert status.state == "completed"
    return status


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("half", ["unsent", "unanswered"])
@pytest.mark.parametrize("step", ["BEGIN", "write", "settle", "COMMIT"])
def test_effects_happen_once_wherever_the_connection_is_cut(
    database: str, table: Table, step: str, half: Half, kind: str
) -> None:
    """Before a step reaches the server, or after the server has done it and before it could say so."""
    words, after = {
        "BEGIN": (b"BEGIN", b""),
        "write": (WRITE, b""),
        "settle": (SETTLE, WRITE),
        "COMMIT": (b"COMMIT", WRITE),
    }[step]
    status = run_into(Trap(words, half, after), database, kind)
    assert table.job_transaction() == [("job", status.lease)]
    assert table.ask("select count(*) from pgjq.done") == [(1,)]
    if (step, half) == ("COMMIT", "unanswered"):
        assert status.attempts == 1, "a COMMIT that the server made is known to have been made"


@pytest.mark.parametrize("half", ["unsent", "unanswered"])
def test_a_commit_that_is_lost_by_another_driver_is_found_out_as_well(database: str, table: Table, half: Half) -> None:
    """SQLAlchemy may have asyncpg below it, which has errors of its own for a lost connection."""
    status = run_into(Trap(b"COMMIT", half, WRITE), database, "asyncpg async")
    assert table.job_transaction() == [("job", status.lease)]
    assert status.attempts == (2 if half == "unsent" else 1)


def test_a_commit_that_takes_long_holds_up_no_other_lease(
    database: str, postgres: PostgresStorage, table: Table
) -> None:
    # The row of a job that is being completed is locked by its own transaction; a heartbeat for it would wait there,
    # and every other lease of the worker with it.
    finish = threading.Event()

    def work(job: Job) -> None:
        if job.id == "slow to commit":
            writer("psycopg", database)(job)
        else:
            finish.wait(60)

    client = Client(postgres)
    with psycopg.connect(database, autocommit=True) as gate:
        gate.execute(SLOW_COMMIT)
        gate.execute("select pg_advisory_lock(%s)", [LOCK])
        client.enqueue_many("q", [("slow to commit", None), ("another", None)])
        queue = worker(postgres, work, concurrency=2, lease=1, heartbeat=0.2)
        ended = Events(queue, "completed", "failing", "failed", "stalled")
        with queue:
            until(
                lambda: table.ask(
                    "select from pg_locks where locktype = 'advisory' and objid = %s and not granted", LOCK
                )
            )
            began = until(lambda: table.ask("select min(locked_until) from pgjq.job where state = 1"))[0][0]
            until(
                lambda: table.ask(
                    "select from pgjq.jobs where id = 'another' and locked_until > %s + interval '2 s'", began
                )
            )
            gate.execute("select pg_advisory_unlock(%s)", [LOCK])
            finish.set()
            ended.wait(2)
        gate.execute("drop function slow_commit cascade")
    assert [event.name for event in ended.events] == ["completed", "completed"]
