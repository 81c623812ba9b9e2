"""How long a result can be read, and its id is taken: settled at the enqueue, by the clock that a test moves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import Client, Discard, LeasePolicy, MemoryStorage, NewJob, PostgresStorage, Queue
from pgjq.blocking import drive
from pgjq.outcome import Completed, Failed, describe
from pgjq.storage.base import Settlement
from pgjq.testing.clock import ManualClock, PostgresClock, RedisClock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.storage.base import Storage
    from pgjq.testing.clock import Clock


@pytest.fixture(params=["memory", "postgres", "redis"])
def timed(request: pytest.FixtureRequest) -> Iterator[tuple[Storage, Clock]]:
    if request.param == "memory":
        clock = ManualClock()
        yield MemoryStorage(clock=clock), clock
        return
    if request.param == "redis":
        storage = request.getfixturevalue("redis_storage")
        yield storage, RedisClock(storage)
        return
    moved = PostgresClock(request.getfixturevalue("database"))
    yield request.getfixturevalue("postgres"), moved
    moved.restore()


def work(storage: Storage, *, fail: bool = False) -> None:
    """Run everything that waits, with its payload as the result."""
    ops = storage.operations("sync")
    jobs = drive(ops.claim(["q"], worker="w", limit=100, policy=LeasePolicy()))
    error = describe(Discard("no"))
    drive(ops.settle([Settlement(j.lease, Failed(error) if fail else Completed(j.payload)) for j in jobs]))


def test_each_job_keeps_its_own_time(timed: tuple[Storage, Clock]) -> None:
    storage, clock = timed
    client = Client(storage)
    client.enqueue_many("q", [NewJob("short", 1, result_ttl=10), NewJob("long", 2, result_ttl=1000)])
    work(storage)
    clock.advance(10)
    assert client.get_result("q", "short", "gone") == "gone"
    assert client.get_result("q", "long", "gone") == 2
    assert client.enqueue("q", "short", 3).status == "queued"
    assert client.enqueue("q", "long", 3).status == "completed"


def test_the_producers_default_holds_whatever_the_consumers_is(timed: tuple[Storage, Clock]) -> None:
    storage, clock = timed
    producer = Queue("q", storage=storage, result_ttl=10)
    Queue("q", storage=storage, result_ttl=1000)
    producer.enqueue("a", 1)
    producer.enqueue("b", 1, result_ttl=1000)
    work(storage)
    clock.advance(10)
    assert (producer.get_result("a", "gone"), producer.get_result("b", "gone")) == ("gone", 1)


def test_a_duplicate_does_not_change_the_time(timed: tuple[Storage, Clock]) -> None:
    storage, clock = timed
    client = Client(storage)
    client.enqueue("q", "a", 1, result_ttl=10)
    assert client.enqueue("q", "a", 1, result_ttl=1000).status == "duplicate"
    work(storage)
    assert client.enqueue("q", "a", 1, result_ttl=1000).status == "completed"
    clock.advance(10)
    assert client.get_result("q", "a", "gone") == "gone"


def test_an_error_has_the_same_time_as_a_result(timed: tuple[Storage, Clock]) -> None:
    storage, clock = timed
    client = Client(storage)
    client.enqueue("q", "a", 1, result_ttl=10, max_attempts=1)
    work(storage, fail=True)
    assert client.get_status("q", "a").error.message == "no"  # type: ignore[union-attr]
    assert client.enqueue("q", "a", 1, on_failed="duplicate").status == "duplicate"
    clock.advance(10)
    assert client.get_status("q", "a").error is None  # type: ignore[union-attr]
    assert client.enqueue("q", "a", 1, on_failed="duplicate").status == "queued"


def test_what_has_expired_leaves_the_disk_by_pruning(
    postgres: PostgresStorage, database: str, request: pytest.FixtureRequest
) -> None:
    clock = PostgresClock(database)
    request.addfinalizer(clock.restore)
    client = Client(postgres)
    client.enqueue("q", "a", "secret", result_ttl=10, delete_after_seconds=1)
    work(postgres)
    prune = postgres.operations("sync").prune
    with psycopg.connect(database, autocommit=True) as connection:

        def on_disk() -> list[Any]:
            return connection.execute("select result from pgjq.done union all select payload from pgjq.body").fetchall()

        clock.advance(9)
        assert drive(prune()) == 0
        assert len(on_disk()) == 2
        clock.advance(1)
        assert client.get_result("q", "a", "gone") == "gone"
        assert drive(prune()) == 1
        assert on_disk() == []


def test_an_expired_result_is_asked_for_anew(timed: tuple[Storage, Clock]) -> None:
    storage, clock = timed
    client = Client(storage)
    client.enqueue("q", "a", "first", result_ttl=10)
    work(storage)
    assert client.enqueue_and_wait("q", "a", "second") == "first"
    clock.advance(10)
    with pytest.raises(TimeoutError):
        client.enqueue_and_wait("q", "a", "second", timeout=0.01)
    work(storage)
    assert client.enqueue_and_wait("q", "a", "third") == "second"
