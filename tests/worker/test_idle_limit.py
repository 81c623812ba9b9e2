"""The server ends a handler's transaction that is idle after its run is over, and no transaction of a live run."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import asyncpg
import psycopg
import pytest
from django.db import connections, transaction
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.pool import NullPool

from pgjq import AsyncJob, Job, LeaseLostError, LeasePolicy, PostgresStorage, Queue
from tests.worker.conftest import Events
from tests.worker.test_session_factories import ALIAS, use_django

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

WRITE = "insert into effect values (1)"
SHOW = "show idle_in_transaction_session_timeout"
MARGIN = "pgjq.worker.run.IDLE_MARGIN"
# Nothing reaps: only the server can end a handler's session.
UNRENEWED = LeasePolicy(lease=0.5, heartbeat=None, expire=None, reap_interval=3600)
Act = Any  # (connection, statement) -> the first value of the first row, or None


@pytest.fixture
def effects(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to the table that handlers write to."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("create table effect (n integer)")
        yield connection
        connection.execute("drop table effect")


def run(storage: PostgresStorage, policy: LeasePolicy, handler: Callable[..., Any]) -> tuple[str, str | None]:
    """Run one job once; return its state and the type of its error."""
    queue = Queue("q", storage=storage, block_timeout=30, lease_policy=policy)
    queue.execute(handler)
    ended = Events(queue, "completed", "failed")
    queue.enqueue("job", None, max_attempts=1)
    with queue:
        ended.wait()
    status = queue.get_status("job")
    assert status is not None
    return status.state, None if status.error is None else status.error.type


def first(rows: Any) -> Any:
    return rows.fetchone()[0] if rows.description else None


def alchemy(connection: Any, statement: str) -> Any:
    found = connection.execute(text(statement))
    return found.scalar() if found.returns_rows else None


def in_django(_connection: Any, statement: str) -> Any:
    cursor = connections[ALIAS].cursor()
    cursor.execute(statement)
    return cursor.fetchone()[0] if cursor.description else None


def sync_kind(database: str, kind: str) -> tuple[Callable[[], Any] | None, Act]:
    """Return a factory for `job.transaction()`, and a function that runs a statement in its block."""
    if kind.startswith("Django"):
        use_django(database)
        atomic = lambda: transaction.atomic(using=ALIAS)  # noqa: E731
        return atomic if kind == "Django atomic" else lambda: connections[ALIAS], in_django
    if kind.startswith("SQLAlchemy"):
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(database), poolclass=NullPool)
        return engine.connect if kind == "SQLAlchemy connection" else lambda: Session(engine), alchemy
    factories: dict[str, Any] = {
        "pool": None,
        "psycopg": lambda: psycopg.connect(database),
        "psycopg, autocommit": lambda: psycopg.connect(database, autocommit=True),
    }
    return factories[kind], lambda connection, statement: first(connection.execute(statement))


SYNC = (
    "pool",
    "psycopg",
    "psycopg, autocommit",
    "SQLAlchemy connection",
    "SQLAlchemy session",
    "Django connection",
    "Django atomic",
)


async def open_async(database: str, kind: str) -> tuple[Callable[[], Any] | None, Act]:
    """Do the same as `sync_kind`, for coroutines."""
    if kind == "asyncpg":
        given = conninfo_to_dict(database)
        made = await asyncpg.connect(host=given["host"], user=given["user"], database=given["dbname"], ssl=False)
        return lambda: made, lambda connection, statement: connection.fetchval(statement)
    if kind.startswith("SQLAlchemy"):
        given = conninfo_to_dict(database)

        async def connect() -> Any:
            if kind.endswith("asyncpg"):
                return await asyncpg.connect(
                    host=given["host"], user=given["user"], database=given["dbname"], ssl=False
                )
            return await psycopg.AsyncConnection.connect(database)

        driver = "asyncpg" if kind.endswith("asyncpg") else "psycopg"
        engine = create_async_engine(f"postgresql+{driver}://", async_creator=connect, poolclass=NullPool)

        async def in_alchemy(session: Any, statement: str) -> Any:
            found = await session.execute(text(statement))
            return found.scalar() if found.returns_rows else None

        return lambda: AsyncSession(engine), in_alchemy

    async def in_psycopg(connection: Any, statement: str) -> Any:
        found = await connection.execute(statement)
        return (await found.fetchone())[0] if found.description else None

    if kind == "pool":
        return None, in_psycopg
    made = await psycopg.AsyncConnection.connect(database)
    return lambda: made, in_psycopg


ASYNC = ("pool", "psycopg", "asyncpg", "SQLAlchemy, psycopg", "SQLAlchemy, asyncpg")


class Frozen:
    """A handler's block that stops after a write, as that of a host which vanishes, and goes on when told to."""

    def __init__(self, database: str, kind: str) -> None:
        self._database, self._kind = database, kind
        self.wrote, self.freed = threading.Event(), threading.Event()
        self.raised: BaseException | None = None

    def handle(self, job: Job) -> None:
        factory, act = sync_kind(self._database, self._kind)
        try:
            with job.transaction(factory) as connection:
                act(connection, WRITE)
                self.wrote.set()
                self.freed.wait(60)
                act(connection, WRITE)
        except Exception as error:
            self.raised = error
            raise
        finally:
            if factory is not None and self._kind.startswith("Django"):
                connections[ALIAS].close()

    async def handle_async(self, job: AsyncJob) -> None:
        factory, act = await open_async(self._database, self._kind)
        try:
            async with job.transaction(factory) as connection:
                await act(connection, WRITE)
                self.wrote.set()
                while not self.freed.is_set():
                    try:
                        await asyncio.sleep(0.05)
                    except asyncio.CancelledError:  # A handler that does not listen: its lease is lost.
                        asyncio.current_task().uncancel()  # pyright: ignore[reportOptionalMemberAccess]
                await act(connection, WRITE)
        except Exception as error:
            self.raised = error
            raise


@pytest.mark.parametrize(
    ("style", "kind"), [*(("plain", kind) for kind in SYNC), *(("coroutine", kind) for kind in ASYNC)]
)
def test_row_locks_are_freed_soon_after_the_lease_is_over(
    database: str,
    postgres: PostgresStorage,
    effects: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    *,
    style: str,
    kind: str,
) -> None:
    monkeypatch.setattr(MARGIN, 0.3)
    frozen = Frozen(database, kind)

    def wait_for_the_lock() -> None:
        frozen.wrote.wait(60)
        try:
            with psycopg.connect(database, options="-c lock_timeout=30s") as other:
                other.execute("lock table effect in access exclusive mode")
            released.append(True)
        finally:
            frozen.freed.set()

    released: list[bool] = []
    other = threading.Thread(target=wait_for_the_lock)
    other.start()
    ended = run(postgres, UNRENEWED, frozen.handle if style == "plain" else frozen.handle_async)
    other.join()
    assert released == [True]
    assert isinstance(frozen.raised, LeaseLostError)
    assert ended == ("failed", "pgjq.errors.LeaseLostError")
    assert effects.execute("select from effect").fetchall() == []


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (LeasePolicy(lease=20, heartbeat=None, expire=None), "25s"),
        (LeasePolicy(lease=20, heartbeat=None, expire=900), "25s"),
        (LeasePolicy(lease=20, heartbeat=5, expire=115), "2min"),
        (LeasePolicy(lease=None, heartbeat=None, expire=15), "20s"),
        (LeasePolicy(lease=20, heartbeat=5, expire=None), "0"),
        (LeasePolicy(lease=None, heartbeat=None, expire=None), "0"),
        (LeasePolicy(lease=None, heartbeat=None, expire=10_000_000), "2147483s"),
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["pool", "SQLAlchemy session"])
def test_the_limit_is_when_the_run_is_certainly_over(
    database: str, postgres: PostgresStorage, kind: str, policy: LeasePolicy, limit: str
) -> None:
    seen: list[str] = []
    factory, act = sync_kind(database, kind)

    def look(job: Job) -> None:
        with job.transaction(factory) as connection:
            seen.append(act(connection, SHOW))

    assert run(postgres, policy, look) == ("completed", None)
    assert seen == [limit]


@pytest.mark.parametrize(("own", "inside"), [("10s", "10s"), ("50s", "25s"), ("0", "25s")])
def test_a_lower_limit_of_the_session_stays_and_the_session_has_its_own_value_afterwards(
    database: str, postgres: PostgresStorage, own: str, inside: str
) -> None:
    factory, act = sync_kind(database, "Django connection")  # Django keeps the connection.
    seen: list[str] = []

    def look(job: Job) -> None:
        try:
            act(None, f"set idle_in_transaction_session_timeout = '{own}'")
            with job.transaction(factory):
                seen.append(act(None, SHOW))
            seen.append(act(None, SHOW))
        finally:
            connections[ALIAS].close()

    assert run(postgres, LeasePolicy.visibility(20), look) == ("completed", None)
    assert seen == [inside, own]


@pytest.mark.parametrize("kind", ["pool", "SQLAlchemy session"])
def test_a_handler_may_compute_for_longer_than_its_lease_while_heartbeats_renew_it(
    database: str,
    postgres: PostgresStorage,
    effects: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(MARGIN, 0.1)
    factory, act = sync_kind(database, kind)

    def compute(job: Job) -> None:
        with job.transaction(factory) as connection:
            act(connection, WRITE)
            job.signal.wait(1.5)
            act(connection, WRITE)

    assert run(postgres, LeasePolicy(lease=0.6, heartbeat=0.2, expire=60), compute) == ("completed", None)
    assert len(effects.execute("select from effect").fetchall()) == 2


@pytest.mark.parametrize("kind", [*SYNC, "pool, another thread"])
def test_a_handler_that_renews_its_own_lease_is_not_cut_off(
    database: str,
    postgres: PostgresStorage,
    effects: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(MARGIN, 0.1)
    factory, act = sync_kind(database, kind.removesuffix(", another thread"))

    def renew(job: Job) -> None:
        until = time.monotonic() + 2
        while time.monotonic() < until:
            job.signal.wait(0.1)
            job.heartbeat()

    def compute(job: Job) -> None:
        with job.transaction(factory) as connection:
            act(connection, WRITE)
            if kind.endswith("another thread"):
                other = threading.Thread(target=renew, args=(job,))
                other.start()
                other.join()
            else:
                renew(job)
            act(connection, WRITE)
        if kind.startswith("Django"):
            connections[ALIAS].close()

    policy = LeasePolicy(lease=0.8, heartbeat=None, expire=None, reap_interval=3600)
    assert run(postgres, policy, compute) == ("completed", None)
    assert len(effects.execute("select from effect").fetchall()) == 2


@pytest.mark.parametrize("kind", ASYNC)
def test_a_coroutine_that_renews_its_own_lease_is_not_cut_off(
    database: str,
    postgres: PostgresStorage,
    effects: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    monkeypatch.setattr(MARGIN, 0.1)

    async def compute(job: AsyncJob) -> None:
        factory, act = await open_async(database, kind)
        async with job.transaction(factory) as connection:
            await act(connection, WRITE)
            until = time.monotonic() + 2
            while time.monotonic() < until:
                await asyncio.sleep(0.1)
                await job.heartbeat()
            await act(connection, WRITE)

    policy = LeasePolicy(lease=0.8, heartbeat=None, expire=None, reap_interval=3600)
    assert run(postgres, policy, compute) == ("completed", None)
    assert len(effects.execute("select from effect").fetchall()) == 2


def test_the_block_may_still_choose_its_isolation_level(postgres: PostgresStorage) -> None:
    seen: list[str] = []

    def choose(job: Job) -> None:
        with job.transaction() as connection:
            connection.execute("set transaction isolation level serializable")
            seen.append(first(connection.execute("show transaction_isolation")))

    assert run(postgres, LeasePolicy(), choose) == ("completed", None)
    assert seen == ["serializable"]
