"""Give queues another storage, and storages another connection, for the time of a test."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from pgjq.errors import StorageError, UnsupportedError
from pgjq.storage.postgres.storage import PostgresStorage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Generator

    from pgjq.queue import QueueBase
    from pgjq.storage.base import Storage
    from pgjq.storage.postgres.session import Session

_bound: ContextVar[tuple[Storage, Session] | None] = ContextVar("pgjq bound session", default=None)


@contextmanager
def use_storage(storage: Storage, *queues: QueueBase) -> Generator[Storage]:
    """Keep the jobs of queues in another storage until the block ends."""
    before = [(queue, queue.storage) for queue in queues]
    try:
        for queue in queues:
            queue.bind(storage)
        yield storage
    finally:
        for queue, own in before:
            queue.bind(own)


@contextmanager
def use_connection(storage: Storage, connection: Any) -> Generator[None]:
    """Run every operation of a PostgreSQL storage on a test's connection, in its transaction.

    All queues and clients of this storage object then enqueue, read and run in that transaction, and what they did goes
    when it is rolled back. `connection` is what `enqueue(connection=…)` takes. Only the test's own thread may use the
    storage meanwhile. An async connection serves async queues and clients only.
    """
    if not isinstance(storage, PostgresStorage):
        raise UnsupportedError(f"{type(storage).__name__} has no transactions: connection= is for PostgresStorage")
    with storage.bound(connection) as session:
        token = _bound.set((storage, session))
        try:
            yield
        finally:
            _bound.reset(token)


async def see_moved_clock(storage: Storage) -> None:
    """Have the test's open transaction see a clock that another connection has moved.

    PostgreSQL reads what other sessions have changed in its catalogs when it takes a lock that the transaction does not
    hold yet. The later statements of a transaction take none, and their plans would keep the time before the move. A
    new table is a new lock; the savepoint undoes it.
    """
    found = _bound.get()
    if found is None or found[0] is not storage:
        return
    for command in (
        "savepoint pgjq_clock",
        "create temporary table pgjq_clock_moved ()",
        "rollback to savepoint pgjq_clock",
        "release savepoint pgjq_clock",
    ):
        await found[1].command(command)


@asynccontextmanager
async def protected(storage: Storage) -> AsyncGenerator[None]:
    """Keep the test's transaction usable: undo a handler's writes after a failed statement."""
    found = _bound.get()
    if found is None or found[0] is not storage:
        yield
        return
    session = found[1]
    await session.command("savepoint pgjq_run")
    yield
    try:
        await session.command("release savepoint pgjq_run")
    except StorageError:
        await session.command("rollback to savepoint pgjq_run")
        await session.command("release savepoint pgjq_run")
