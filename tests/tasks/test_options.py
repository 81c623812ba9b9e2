"""Options of tasks and calls: ids and keys of the arguments, headers, connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import Client, MemoryStorage, PostgresStorage, Queue, UnsupportedError, ValidationError
from pgjq.options import HEADERS_BYTES, HEADERS_COUNT

if TYPE_CHECKING:
    from pgjq.testing.worker.harness import Harness


def test_ids_and_keys_are_made_of_the_arguments(harness: Harness) -> None:
    async def case() -> None:
        mail = harness.queue()

        @mail.task(id="order-{order}-{copies}", singleton_key=lambda order: f"key{order}")
        def receipt(order: int, copies: int = 1) -> None: ...

        handle = await harness.call(receipt.enqueue, 7)
        again = await harness.call(receipt.enqueue, order=7, copies=1)
        other = await harness.call(receipt.enqueue, 7, copies=2)
        assert [h.id for h in (handle, again, other)] == ["order-7-1", "order-7-1", "order-7-2"]
        assert [h.enqueued.status for h in (handle, again, other)] == ["queued", "duplicate", "queued"]
        assert (await harness.call(handle.status)).singleton_key == "key7"
        own = await harness.call(receipt.using(id="receipt-7", singleton_key=None, delay=60).enqueue, 7)
        status = await harness.call(own.status)
        assert (status.id, status.singleton_key, status.run_at > status.created_at) == ("receipt-7", None, True)

    harness.run(case())


def test_templates_and_functions_of_every_kind() -> None:
    queue = Queue("q", storage=MemoryStorage())

    class Order:
        def __init__(self, number: int) -> None:
            self.number = number

    @queue.task
    def task(order: Any, *rest: int, **names: str) -> None: ...

    def made(source: Any, *args: Any, **kwargs: Any) -> str | None:
        return task.using(id=source).call(*args, **kwargs).id

    assert made("o-{order[a]}-{names[x]}", {"a": 1}, x="y") == "o-1-y"
    assert made("all", 1) == "all"
    assert made("{{{order}}}", 1) == "{1}"
    assert made(lambda order, names: f"{order}{names}", 1, a="b") == "1{'a': 'b'}"
    assert made(lambda *args, **kwargs: f"{args}{kwargs}", 1, 2, a="b") == "(1, 2){'a': 'b'}"
    assert made(lambda o: f"{o}!", 1) == "1!"
    assert made(lambda order: order and None, 1) is None
    with pytest.raises(ValidationError, match="id cannot be made from the arguments: KeyError"):
        made("{names[x]}", 1)
    with pytest.raises(ValidationError, match="a job's id must be a str, not int"):
        task.using(id=lambda order: order).enqueue(5)
    with pytest.raises(ValidationError, match="singleton_key must be a str"):
        task.using(singleton_key=lambda order: order).enqueue(5)


def test_headers_survive_retries_and_dead_letters(harness: Harness) -> None:
    async def case() -> None:
        mail = harness.queue()
        client = harness.client()
        seen: list[Any] = []
        headers = {"traceparent": "00-ab-cd-01", "é": ""}

        @mail.execute
        def handle(job: Any) -> None:
            seen.append(job.headers)
            raise ValueError

        options: dict[str, Any] = {"max_attempts": 2, "headers": headers}
        if harness.storage.capabilities.definitions:
            await harness.call(client.create_queue, "dead")
            options["dead_letter"] = "dead"
        async with harness.started(mail):
            await harness.call(mail.enqueue, "a", {"task": "x"}, **options)
            status = await harness.until_state(mail, "a", "failed")
            assert status.headers == headers
            await harness.call(client.retry, "mail", "a")
            await harness.until(lambda: len(seen) == 4)
            await harness.until_state(mail, "a", "failed")
        assert seen == [headers] * 4
        if harness.storage.capabilities.definitions:
            letters = await harness.call(client.find_jobs, "dead", task="x")
            assert [letter.headers for letter in letters] == [headers, headers]
            await harness.call(client.redrive, "dead", limit=1, to="third")
            (back,) = await harness.call(client.find_jobs, "third")
            assert (back.headers, back.task) == (headers, "x")

    harness.run(case())


@pytest.mark.parametrize(
    "headers",
    [
        {"a": 1},
        {1: "a"},
        "text",
        [("a", "b", "c")],
        {"": "a"},
        {"a": "\0"},
        {"a": "\ud800"},
        {str(n): "" for n in range(HEADERS_COUNT + 1)},
        {"a": "x" * HEADERS_BYTES},
    ],
)
def test_headers_are_bounded_text(headers: Any) -> None:
    queue = Queue("q", storage=MemoryStorage())
    with pytest.raises(ValidationError, match="header"):
        queue.enqueue(None, 1, headers=headers)
    assert queue.client.find_jobs() == []


def test_the_largest_headers_are_stored(harness: Harness) -> None:
    async def case() -> None:
        headers = {f"{n:02}": "ä" * 63 for n in range(HEADERS_COUNT)}
        queue = harness.queue()
        await harness.call(queue.enqueue, "a", 1, headers=headers)
        await harness.call(queue.enqueue, "b", 1, headers={})
        assert (await harness.call(queue.get_status, "a")).headers == headers
        assert not (await harness.call(queue.get_status, "b")).headers

    harness.run(case())


def test_a_task_is_enqueued_in_the_callers_transaction(postgres: PostgresStorage, database: str) -> None:
    mail = Queue("mail", storage=postgres)

    @mail.task(id="order-{order}")
    def receipt(order: int) -> None: ...

    with psycopg.connect(database) as shop:
        handle = receipt.using(connection=shop).enqueue(7)
        assert handle.status() is None
        shop.commit()
        assert (status := handle.status())
        assert status.task == "receipt"
        with pytest.raises(ValidationError, match="pass it to enqueue_many"):
            receipt.using(connection=shop).call(7)
        mail.enqueue_many([receipt.call(8)], connection=shop)
        shop.rollback()
    assert Client(postgres).get_status("mail", "order-8") is None
    other = Queue("mail", storage=MemoryStorage())
    with pytest.raises(UnsupportedError):
        other.task(receipt.function).using(connection=object()).enqueue(1)
