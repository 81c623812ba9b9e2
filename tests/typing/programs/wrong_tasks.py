"""Tasks with errors that type checkers find."""

from collections.abc import Iterator

import pgjq

storage = pgjq.MemoryStorage()
mail = pgjq.Queue("mail", storage=storage)
orders = pgjq.AsyncQueue("orders", storage=storage)


class Database:
    """A connection."""


def connect() -> Iterator[Database]:
    """Provide a connection, and close it."""
    yield Database()


@mail.task
def receipt(order: int, *, copy: bool = False) -> str:
    """Return a text."""
    return f"{order} {copy}"


@orders.task
async def ship(order: int) -> int:
    """Return a number."""
    return order


@mail.task
def archive(order: int, database: str = pgjq.Depends(connect)) -> None:  # error: reportArgumentType, assignment
    """Use a dependency of another type."""


receipt("x")  # error: reportArgumentType, arg-type
receipt.enqueue("x")  # error: reportArgumentType, arg-type
receipt.enqueue()  # error: reportCallIssue, call-arg
receipt.enqueue(7, True)  # error: reportCallIssue, call-arg
receipt.enqueue(7, copy="yes")  # error: reportArgumentType, arg-type
receipt.enqueue(7, kopie=True)  # error: reportCallIssue, call-arg
receipt.enqueue(7, delay=60)  # error: reportCallIssue, call-arg
receipt.call("x")  # error: reportArgumentType, arg-type
receipt.call(7, kopie=True)  # error: reportCallIssue, call-arg
receipt.using(delay="soon").enqueue(7)  # error: reportArgumentType, arg-type
receipt.using(dellay=60)  # error: reportCallIssue, call-arg
receipt.using(delay=60).enqueue("x")  # error: reportArgumentType, arg-type
receipt.using(backoff=5)  # error: reportArgumentType, arg-type
receipt.schedule("0 3 * * *", "x")  # error: reportArgumentType, arg-type
number: int = receipt.enqueue(7).result()  # error: reportAssignmentType, assignment
handle: pgjq.Handle[int] = receipt.enqueue(7)  # error: reportAssignmentType, assignment
waiting: pgjq.Handle[int] = ship.enqueue(7)  # error: reportAssignmentType, assignment
mail.task(retry_on="ValueError")  # error: reportArgumentType, arg-type
mail.task(version="2")  # error: reportArgumentType, call-overload


@mail.execute  # error: reportArgumentType, arg-type
def handler(job: str) -> None:
    """Take a payload instead of a job."""


async def run() -> None:
    """Use a task of an async queue."""
    text: str = await ship(7)  # error: reportAssignmentType, assignment
    more: str = await (await ship.enqueue(7)).result()  # error: reportAssignmentType, assignment
    await ship.enqueue("x")  # error: reportArgumentType, arg-type
    await ship.using(priority="high").enqueue(7)  # error: reportArgumentType, arg-type
    print(text, more)
