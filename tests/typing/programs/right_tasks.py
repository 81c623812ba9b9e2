"""Tasks that type checkers accept: signatures, results and options survive."""

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import assert_type

import pgjq

storage = pgjq.MemoryStorage()
mail = pgjq.Queue("mail", storage=storage)
orders = pgjq.AsyncQueue("orders", storage=storage)


class Database:
    """A connection."""


def connect() -> Iterator[Database]:
    """Provide a connection, and close it."""
    yield Database()


async def connect_async() -> AsyncIterator[Database]:
    """Provide a connection on the event loop."""
    yield Database()


@mail.task
def receipt(order: int, *, copy: bool = False) -> str:
    """Return a text."""
    return f"{order} {copy}"


@mail.task(name="invoice", version=2, aliases=["bill"], id="invoice-{order}", retry_on=(ConnectionError,))
async def invoice(order: int) -> float:
    """Return an amount."""
    return order * 1.5


@mail.task(backoff=lambda _error, attempt: timedelta(seconds=attempt))
def archive(order: int, database: Database = pgjq.Depends(connect)) -> Database:
    """Use a dependency."""
    print(order)
    return database


@orders.task
async def ship(order: int, database: Database = pgjq.Depends(connect_async)) -> int:
    """Use a dependency of a coroutine."""
    print(database)
    return order


@orders.task(priority=5)
def pack(order: int) -> list[str]:
    """Run on a thread."""
    return [str(order)]


@mail.execute
def other(job: pgjq.Job) -> None:
    """Handle the jobs that name no task."""


@orders.execute
async def others(job: pgjq.AsyncJob) -> None:
    """Handle the jobs that name no task, on the event loop."""


assert_type(receipt(7, copy=True), str)
assert_type(receipt.enqueue(7, copy=True), pgjq.Handle[str])
assert_type(receipt.enqueue(7).result(timeout=30.0), str)
assert_type(invoice.enqueue(7).result(), float)
assert_type(archive.enqueue(7), pgjq.Handle[Database])
assert_type(receipt.using(id="receipt-7", delay=60).enqueue(7), pgjq.Handle[str])
mail.enqueue_many([receipt.call(1), receipt.using(priority=5).call(2, copy=True), ("id", {"order": 7})])


async def run() -> None:
    """Use tasks of an async queue."""
    assert_type(await invoice(7), float)
    assert_type(await ship(7), int)
    handle = await ship.enqueue(7)
    assert_type(handle, pgjq.AsyncHandle[int])
    assert_type(await handle.result(timeout=5), int)
    assert_type(await (await pack.using(delay=1).enqueue(7)).result(), list[str])
    await orders.enqueue_many([ship.call(1), pack.call(2)])
