"""Notifications that cannot be read: one line in the log each minute, and no waiter misses anything."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
import redis

import pgjq
from pgjq.storage import malformed_notifications
from tests.request_response.conftest import serving, until

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

GARBAGE = [
    "not JSON",
    "7",
    "[]",
    '{"a": 1}',
    '["q", 7]',
    "[[1]]",
    '[{"at": 1e300}]',
    '{"queue": "q", "at": 1e300, "events": [[]]}',
]
BROKEN = '[{"name": 1, "at": "x"}]'


def sender(storage: Any, database: str, redis_url: str) -> Callable[[str, str], None]:
    """Return a function that sends a notification as any login can."""
    if isinstance(storage, pgjq.PostgresStorage):

        def notify(channel: str, text: str) -> None:
            with psycopg.connect(database, autocommit=True) as connection:
                connection.execute("select pg_notify(%s, %s)", [f"pgjq.{channel}", text])

        return notify

    def publish(channel: str, text: str) -> None:
        with redis.Redis.from_url(redis_url) as client:
            client.publish(getattr(storage.shared.keys, channel), text)

    return publish


def lines(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [record for record in caplog.records if "malformed notifications" in record.getMessage()]


@pytest.mark.parametrize("kind", ["postgres", "redis_storage"])
def test_many_malformed_notifications_are_one_line_and_the_next_answer_comes(
    kind: str, request: pytest.FixtureRequest, database: str, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = request.getfixturevalue(kind)
    send = sender(storage, database, redis_url)
    with serving(storage, lambda job: job.payload) as queue, pgjq.Client(storage).subscribe() as events:
        assert queue.enqueue_and_wait("first", 1, timeout=30) == 1
        for _ in range(5):
            for garbage in (*GARBAGE, BROKEN):
                send("results", garbage)
                send("events", garbage)
        assert queue.enqueue_and_wait("second", 2, timeout=30) == 2
        until(lambda: next(events).id == "second")
    # A listener for each channel on Redis, one for all of them on PostgreSQL.
    assert 1 <= len(lines(caplog)) <= 2
    assert [record for record in caplog.records if record.exc_info] == []


@pytest.mark.parametrize("kind", ["postgres", "redis_storage"])
def test_so_it_is_on_an_event_loop(
    kind: str, request: pytest.FixtureRequest, database: str, redis_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    storage = request.getfixturevalue(kind)
    send = sender(storage, database, redis_url)

    async def ask() -> list[Any]:
        client = pgjq.AsyncClient(storage)
        answers = [await client.enqueue_and_wait("q", "first", 1, timeout=30)]
        for garbage in GARBAGE * 5:
            await asyncio.to_thread(send, "results", garbage)
        answers.append(await client.enqueue_and_wait("q", "second", 2, timeout=30))
        await storage.operations("async").close()
        return answers

    with serving(storage, lambda job: job.payload):
        assert asyncio.run(ask()) == [1, 2]
    assert len(lines(caplog)) == 1


def test_those_of_a_minute_are_counted(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(malformed_notifications.time, "monotonic", lambda: now)
    log = malformed_notifications.MalformedLog()
    for _ in range(100):
        log.note("pgjq.events", ValueError("zecret"))
    assert [record.__dict__["count"] for record in lines(caplog)] == [1]
    now += malformed_notifications.EVERY_SECONDS
    log.note("pgjq.events", ValueError("zecret"))
    log.note("pgjq.events", ValueError("zecret"))
    assert [record.__dict__["count"] for record in lines(caplog)] == [1, 100]
    assert "zecret" not in caplog.text
