"""Subscribing what happens anywhere: as an iterator, and by callbacks."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import (
    AsyncClient,
    Client,
    PgjqError,
    PostgresStorage,
    StorageError,
    StorageUnavailableError,
    ValidationError,
)
from pgjq.storage import mailbox
from tests.request_response.conftest import WITH_DEFINITIONS, serving, until

if TYPE_CHECKING:
    from pgjq import Event
    from pgjq.storage.base import Storage


def names(events: list[Event]) -> list[tuple[str, str, str]]:
    return [(event.queue, event.id, event.name) for event in events]


def test_an_iterator_tells_of_one_queue_or_of_all(storage: Storage) -> None:
    client = Client(storage)
    with client.subscribe("one") as one, client.subscribe() as all_of_them:
        client.enqueue("two", "a", 1)
        client.enqueue("one", "b", 1)
        client.cancel("one", "b")
        assert names([next(one), next(one)]) == [("one", "b", "queued"), ("one", "b", "cancelled")]
        assert names([next(all_of_them) for _ in range(3)])[0] == ("two", "a", "queued")
        assert (one.dropped, all_of_them.dropped) == (0, 0)


def test_an_iterator_tells_of_a_whole_life_elsewhere(storage: Storage) -> None:
    client = Client(storage)
    with client.subscribe("q") as events, serving(storage, lambda job: job.payload) as queue:
        queue.enqueue("a", 1)
        assert [next(events).name for _ in range(3)] == ["queued", "processing", "completed"]


def test_an_async_iterator_hears_what_its_client_does(storage: Storage) -> None:
    async def hear() -> list[tuple[str, str, str]]:
        client = AsyncClient(storage)
        events = client.subscribe("q")
        await client.enqueue("q", "a", 1)
        await client.cancel("q", "a")
        heard = [await anext(events), await anext(events)]
        await events.close()
        async with client.subscribe() as everything:
            await client.enqueue("other", "b", 1)
            async for event in everything:
                heard.append(event)
                break
        opened = await client.subscribe("q")
        assert opened.dropped == 0
        await opened.close()
        assert [event async for event in opened] == []
        await storage.operations("async").close()
        return names(heard)

    assert asyncio.run(hear()) == [("q", "a", "queued"), ("q", "a", "cancelled"), ("other", "b", "queued")]


def test_closing_ends_an_iterator_that_waits(storage: Storage) -> None:
    events = Client(storage).subscribe("q")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(list, events)
        events.close()
        events.close()
        assert waiting.result() == []


def test_closing_the_storage_is_told_to_an_iterator_that_waits(storage: Storage) -> None:
    client = Client(storage)
    events = client.subscribe("q")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, events)
        client.close()
        with pytest.raises(StorageError, match="closed"):
            waiting.result()


def test_a_slow_reader_loses_the_oldest_and_is_told_how_many(storage: Storage, monkeypatch: Any) -> None:
    monkeypatch.setattr(mailbox.Mailbox.__init__, "__defaults__", (10,))
    client = Client(storage)
    with client.subscribe("q") as events:
        client.enqueue_many("q", [(f"{n:02}", n) for n in range(25)])
        until(lambda: events.dropped == 15)
        assert sorted(next(events).id for _ in range(10)) == [f"{n:02}" for n in range(15, 25)]


def test_callbacks_hear_of_every_queue_on_a_thread_of_their_own(storage: Storage) -> None:
    heard: list[tuple[str, str, str, str]] = []
    with Client(storage) as client:
        client.on("queued", lambda e: heard.append((e.queue, e.id, e.name, threading.current_thread().name)))
        client.on("cancelled", lambda e: heard.append((e.queue, e.id, e.name, threading.current_thread().name)))
        client.enqueue("one", "a", 1)
        client.enqueue("two", "b", 1)
        client.cancel("one", "a")
        until(lambda: len(heard) == 3)
    assert heard == [
        ("one", "a", "queued", "pgjq events"),
        ("two", "b", "queued", "pgjq events"),
        ("one", "a", "cancelled", "pgjq events"),
    ]


def test_callbacks_hear_on_the_event_loop_and_may_be_coroutines(storage: Storage) -> None:
    async def hear() -> list[str]:
        heard: list[str] = []
        both = asyncio.Event()

        async def note(event: Event) -> None:
            await asyncio.sleep(0)
            heard.append(f"coroutine {event.id}")
            if len(heard) == 2:
                both.set()

        async with AsyncClient(storage) as client:
            client.on("queued", note)
            client.on("queued", lambda event: heard.append(f"function {event.id}"))
            await client.enqueue("q", "a", 1)
            await both.wait()
        return sorted(heard)

    assert asyncio.run(hear()) == ["coroutine a", "function a"]


def test_a_callback_that_fails_is_an_error_event_and_stops_no_other(storage: Storage) -> None:
    errors: list[Exception] = []
    heard: list[str] = []

    def stumble(event: Event) -> None:
        heard.append(event.id)
        raise ValueError(event.id)

    with Client(storage) as client:
        client.on("queued", stumble)
        client.on("error", errors.append)
        client.enqueue("q", "a", 1)
        client.enqueue("q", "b", 1)
        until(lambda: len(errors) == 2)
    assert heard == ["a", "b"]
    assert [str(error) for error in errors] == ["a", "b"]


def test_callbacks_that_are_too_slow_are_told_what_they_missed(storage: Storage, monkeypatch: Any) -> None:
    monkeypatch.setattr(mailbox.Mailbox.__init__, "__defaults__", (10,))
    errors: list[Exception] = []
    go = threading.Event()
    with Client(storage) as client:
        client.on("queued", lambda _event: go.wait(60))
        client.on("error", errors.append)
        client.enqueue("q", "first", 1)
        client.enqueue_many("q", [(f"{n}", n) for n in range(30)])
        ears: Any = client._callbacks
        until(lambda: ears._feed.dropped > 0)
        go.set()
        until(lambda: errors)
    assert isinstance(errors[0], PgjqError)
    assert "events dropped" in str(errors[0])


def test_callbacks_are_told_when_nothing_more_will_come(storage: Storage) -> None:
    errors: list[Exception] = []
    client = Client(storage)
    client.on("error", errors.append)
    storage.close()
    until(lambda: errors)
    assert isinstance(errors[0], StorageError)


def test_a_feed_that_cannot_open_says_so_and_can_be_closed() -> None:
    async def hear() -> None:
        nowhere = PostgresStorage("host=127.0.0.1 port=1 dbname=none")
        errors: list[Exception] = []
        client = AsyncClient(nowhere)
        client.on("error", errors.append)
        with pytest.raises(StorageUnavailableError):
            async with client.subscribe():
                pass
        with pytest.raises(StorageUnavailableError):
            await client.enqueue("q", "a", 1)
        await client.close()
        assert isinstance(errors[0], StorageUnavailableError)

    asyncio.run(hear())


def test_what_cannot_be_heard_is_refused(storage: Storage) -> None:
    async def coroutine(_event: Event) -> None: ...

    client = Client(storage)
    with pytest.raises(ValidationError, match="there is no event 'finished'"):
        client.on("finished", print)  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="must be callable"):
        client.on("queued", "print")  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match="use AsyncClient"):
        client.on("queued", coroutine)
    with pytest.raises(ValidationError, match="queue's name"):
        client.subscribe("")
    with pytest.raises(ValidationError, match="inside a coroutine"):
        AsyncClient(storage).on("queued", print)
    client.close()


@pytest.mark.parametrize("storage", WITH_DEFINITIONS, indirect=True)
def test_a_worker_warns_once_of_a_queue_that_grows_too_long(storage: Storage) -> None:
    client, heard = Client(storage), list[Any]()
    client.create_queue("long", warning_queue_size=2)
    client.on("warning", heard.append)
    client.enqueue_many("long", [(None, n) for n in range(3)])
    with serving(storage, lambda job: job.payload):
        until(lambda: heard)
    assert [(event.name, event.queue, event.count) for event in heard] == [("warning", "long", 3)]
    client.close()
