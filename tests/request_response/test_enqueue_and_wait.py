"""Ask and get an answer: `enqueue_and_wait` in both modes, on every storage."""

from __future__ import annotations

import asyncio
import builtins
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq import (
    AsyncClient,
    AsyncQueue,
    Client,
    Discard,
    Job,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    LeasePolicy,
    MaxRetriesError,
    PostgresStorage,
    Queue,
    StorageError,
    ValidationError,
)
from pgjq.blocking import drive
from pgjq.options import DEFAULT_SETTINGS, Submission
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from tests.request_response.conftest import WITH_DEFINITIONS, serving, until

if TYPE_CHECKING:
    from pgjq.storage.base import Storage


def double(job: Job) -> Any:
    return None if job.payload is None else job.payload * 2


@pytest.mark.parametrize("payload", [None, 21, "x" * 500_000])
def test_the_result_comes_back_whatever_it_is(storage: Storage, payload: Any) -> None:
    with serving(storage, double) as queue:
        assert queue.enqueue_and_wait("a", payload) == double(_Fake(payload))
        assert Client(storage).enqueue_and_wait("q", None, payload, timeout=60) == double(_Fake(payload))


def test_the_result_comes_back_to_coroutines(storage: Storage) -> None:
    async def ask() -> list[Any]:
        client = AsyncClient(storage)
        queue = AsyncQueue("q", storage=storage)
        told = [await client.enqueue_and_wait("q", "a", 1), await queue.enqueue_and_wait("b", 2)]
        await storage.operations("async").close()
        return told

    with serving(storage, double):
        assert asyncio.run(ask()) == [2, 4]


def test_a_cached_result_returns_at_once_and_nothing_runs_again(storage: Storage) -> None:
    runs: list[str] = []
    with serving(storage, lambda job: runs.append(job.id)) as queue:
        assert queue.enqueue_and_wait("a", 1) is None
    assert Queue("q", storage=storage).enqueue_and_wait("a", 2, timeout=0.001) is None
    assert runs == ["a"]


def test_a_waiter_sleeps_until_notified_and_reads_the_state_at_most_once(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A poll would sleep for a shorter time, or read more often. A notification with the result needs no read."""
    monkeypatch.setattr("pgjq.storage.result_waiter.LOOK_SECONDS", 60)
    waiting: Any = drive(storage.operations("sync").result_waiter("q", "a"))
    asleep, patience, reads = threading.Event(), list[float](), list[Any]()
    take, read = waiting._box.take, waiting._read_state

    async def record_take(timeout: float) -> Any:
        patience.append(timeout)
        asleep.set()
        return await take(timeout)

    async def record_read() -> Any:
        reads.append(await read())
        return reads[-1]

    monkeypatch.setattr(waiting._box, "take", record_take)
    monkeypatch.setattr(waiting, "_read_state", record_read)
    with ThreadPoolExecutor(1) as pool:
        drive(waiting.enqueue(Submission("a", b"1", DEFAULT_SETTINGS)))
        asked = pool.submit(drive, waiting.answer(100))
        assert asleep.wait(60)
        complete(storage, b"2")
        assert asked.result().result == b"2"
    drive(waiting.close())
    assert patience == [60]
    assert len(reads) == (0 if isinstance(storage, pgjq.RedisStorage) else 1)


def test_a_notification_reaches_a_waiter_that_has_not_begun_to_wait(storage: Storage) -> None:
    """One subscribes before one enqueues: what happens in between is heard."""
    waiting: Any = drive(storage.operations("sync").result_waiter("q", "a"))
    drive(waiting.enqueue(Submission("a", b"1", DEFAULT_SETTINGS)))
    complete(storage, b"2")
    assert drive(waiting._box.take(60))
    drive(waiting.close())


def complete(storage: Storage, result: bytes) -> None:
    """Run the only job there is."""
    ops = storage.operations("sync")
    (job,) = drive(ops.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))
    drive(ops.settle([Settlement(job.lease, Completed(result))]))


def test_duplicates_join_the_wait(storage: Storage) -> None:
    runs: list[str] = []
    go = threading.Event()

    def work(job: Job) -> Any:
        runs.append(job.id)
        go.wait(60)
        return job.payload

    with serving(storage, work) as queue, ThreadPoolExecutor(8) as pool:
        asking = [pool.submit(queue.enqueue_and_wait, "a", n, timeout=60) for n in range(8)]
        until(lambda: runs)
        go.set()
        assert len({asked.result() for asked in asking}) == 1
    assert runs == ["a"]


def test_a_retry_does_not_end_the_wait(storage: Storage) -> None:
    def stumble(job: Job) -> int:
        if job.attempts < 3:
            raise ValueError("not yet")
        return job.attempts

    with serving(storage, stumble) as queue:
        assert queue.enqueue_and_wait("a", None, max_attempts=3) == 3


def test_a_failed_job_raises_what_went_wrong(storage: Storage) -> None:
    def fail(job: Job) -> None:
        raise Discard("never") if job.payload == "discard" else ValueError("boom")

    with serving(storage, fail) as queue:
        with pytest.raises(MaxRetriesError, match="job 'a' in queue 'q' failed: ValueError: boom") as caught:
            queue.enqueue_and_wait("a", "payload", max_attempts=2)
        with pytest.raises(JobFailedError, match="never") as discarded:
            queue.enqueue_and_wait("b", "discard", max_attempts=2)
    original = caught.value.original_error
    assert (original.type, original.message, "boom" in original.traceback) == ("ValueError", "boom", True)
    assert (caught.value.payload, caught.value.attempts) == ("payload", 2)
    assert type(discarded.value) is JobFailedError


def test_a_cancelled_job_raises(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(queue.enqueue_and_wait, "a", 1, timeout=60)
        until(lambda: queue.get_status("a"))
        assert queue.cancel("a").status == "cancelled"
        with pytest.raises(JobCancelledError, match="job 'a' in queue 'q' was cancelled"):
            asking.result()


def test_a_running_job_that_is_cancelled_raises(storage: Storage) -> None:
    def wait_for_the_signal(job: Job) -> None:
        job.signal.wait(60)
        job.signal.raise_if_aborted()

    with serving(storage, wait_for_the_signal) as queue, ThreadPoolExecutor(1) as pool:
        asking = pool.submit(queue.enqueue_and_wait, "a", 1, timeout=60)
        until(lambda: (status := queue.get_status("a")) and status.state == "processing")
        assert queue.cancel("a", active=True).status == "processing"
        with pytest.raises(JobCancelledError):
            asking.result()


def test_a_deleted_job_raises(storage: Storage) -> None:
    client = Client(storage)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(client.enqueue_and_wait, "q", "a", 1, timeout=60)
        until(lambda: client.delete_job("q", "a"))
        with pytest.raises(JobNotFoundError, match="deleted"):
            asking.result()


def test_cancelled_and_enqueued_again_each_waiter_gets_its_own_answer(storage: Storage) -> None:
    ran: list[Any] = []
    queue = Queue("q", storage=storage)
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(queue.enqueue_and_wait, "a", "first", timeout=60)
        until(lambda: queue.cancel("a").status == "cancelled")
        second = pool.submit(queue.enqueue_and_wait, "a", "second", timeout=60)
        with serving(storage, lambda job: ran.append(job.payload) or job.payload):
            assert second.result() == "second"
            with pytest.raises(JobCancelledError):
                first.result()
    assert ran == ["second"]


def test_no_answer_in_time_is_a_time_out_and_the_job_goes_on(storage: Storage) -> None:
    go = threading.Event()
    with serving(storage, lambda _job: go.wait(60)) as queue:
        with pytest.raises(builtins.TimeoutError, match=r"has not ended within 0\.3 s; it is processing and goes on"):
            queue.enqueue_and_wait("a", None, timeout=timedelta(seconds=0.3))
        go.set()
        assert queue.enqueue_and_wait("a", None) is True


def test_a_time_out_says_that_no_worker_serves_the_queue(storage: Storage) -> None:
    queue = Queue("lonely", storage=storage)
    with pytest.raises(pgjq.TimeoutError, match="it is queued, and no worker is listening on that queue"):
        queue.enqueue_and_wait("a", 1, timeout=0.01)
    assert queue.get_status("a").state == "queued"  # type: ignore[union-attr]


def test_a_waiter_that_gives_up_leaves_the_other_its_answer(storage: Storage) -> None:
    go = threading.Event()
    with serving(storage, lambda _job: go.wait(60)) as queue, ThreadPoolExecutor(1) as pool:
        patient = pool.submit(queue.enqueue_and_wait, "a", None, timeout=60)
        until(lambda: queue.get_status("a"))
        with pytest.raises(pgjq.TimeoutError):
            queue.enqueue_and_wait("a", None, timeout=0.01)
        go.set()
        assert patient.result() is True


def test_a_task_that_is_cancelled_leaves_the_other_its_answer(storage: Storage) -> None:
    go = threading.Event()

    async def ask_twice() -> Any:
        client = AsyncClient(storage)
        patient = asyncio.create_task(client.enqueue_and_wait("q", "a", None))
        hasty = asyncio.create_task(client.enqueue_and_wait("q", "a", None))
        await asyncio.to_thread(until, lambda: Client(storage).get_status("q", "a"))
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        go.set()
        answer = await patient
        await storage.operations("async").close()
        return answer

    with serving(storage, lambda _job: go.wait(60)):
        assert asyncio.run(ask_twice()) is True


def test_a_thousand_waiters_at_once(storage: Storage) -> None:
    async def ask_all() -> list[Any]:
        queue = AsyncQueue("q", storage=storage)
        ids = [None if n % 2 else f"{n}" for n in range(1000)]
        told = await asyncio.gather(*(queue.enqueue_and_wait(ids[n], n, timeout=100) for n in range(1000)))
        await storage.operations("async").close()
        return told

    with serving(storage, double):
        assert asyncio.run(ask_all()) == [n * 2 for n in range(1000)]


def test_a_hundred_threads_wait_over_one_connection(postgres: PostgresStorage) -> None:
    import psycopg

    with serving(postgres, double) as queue, ThreadPoolExecutor(100) as pool:
        asking = [pool.submit(queue.enqueue_and_wait, f"{n}", n, timeout=100) for n in range(300)]
        assert [asked.result() for asked in asking] == [n * 2 for n in range(300)]
        with psycopg.connect(postgres.conninfo) as connection:
            listeners = connection.execute(
                "select from pg_stat_activity where application_name = 'pgjq listener' and datname = current_database()"
            ).fetchall()
    assert len(listeners) == 1


def test_a_storage_that_is_closed_ends_the_wait(storage: Storage) -> None:
    queue = Queue("q", storage=storage)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(queue.enqueue_and_wait, "a", 1, timeout=60)
        until(lambda: queue.get_status("a"))
        storage.close()
        with pytest.raises(StorageError, match="closed"):
            asking.result()


@pytest.mark.parametrize("timeout", [0, -1, math.nan, math.inf, "5", None, True, timedelta(0)])
def test_a_timeout_that_is_none_is_refused_before_anything_is_enqueued(storage: Storage, timeout: Any) -> None:
    queue = Queue("q", storage=storage)
    with pytest.raises(ValidationError, match="timeout"):
        queue.enqueue_and_wait("a", 1, timeout=timeout)
    assert queue.get_status("a") is None


@pytest.mark.parametrize("ttl", [0, -1, math.nan, math.inf, "5", True])
def test_a_time_to_live_that_is_none_is_refused_before_anything_is_enqueued(storage: Storage, ttl: Any) -> None:
    queue = Queue("q", storage=storage)
    for call in (queue.enqueue, queue.enqueue_and_wait):
        with pytest.raises(ValidationError, match="result_ttl"):
            call("a", 1, result_ttl=ttl)
    with pytest.raises(ValidationError, match="result_ttl"):
        Queue("q", storage=storage, result_ttl=ttl)
    assert queue.get_status("a") is None


def test_waiting_inside_ones_own_transaction_is_refused(storage: Storage) -> None:
    with pytest.raises(ValidationError, match="connection= and waiting exclude each other"):
        Client(storage).enqueue_and_wait("q", "a", 1, connection=object())


def test_an_option_that_does_not_exist_is_refused(storage: Storage) -> None:
    with pytest.raises(ValidationError, match="unknown option mode"):
        Client(storage).enqueue_and_wait("q", "a", 1, mode="red")


def test_what_a_queue_does_is_heard_on_it(storage: Storage) -> None:
    heard: list[tuple[str, str]] = []
    with serving(storage, double) as queue:
        for name in ("queued", "completed"):
            queue.on(name, lambda event: heard.append((event.name, event.id)))
        queue.enqueue_and_wait("a", 1)
        until(lambda: len(heard) == 2)
    assert sorted(heard) == [("completed", "a"), ("queued", "a")]
    idle = Queue("q", storage=storage)
    idle.on("cancelled", lambda event: heard.append((event.name, event.id)))
    idle.enqueue("b", 1)
    idle.cancel("b")
    idle.cancel("nobody")
    assert heard[2:] == [("cancelled", "b")]


class _Fake:
    def __init__(self, payload: Any) -> None:
        self.payload = payload


@pytest.mark.parametrize("storage", WITH_DEFINITIONS, indirect=True)
def test_a_job_that_a_policy_refuses_has_no_answer_and_says_why(storage: Storage) -> None:
    client = Client(storage)
    client.create_queue("narrow", policy="exclusive")
    client.enqueue("narrow", "first", 1)
    with pytest.raises(JobNotFoundError, match="another job of its key holds the slot"):
        client.enqueue_and_wait("narrow", "second", 2, timeout=5)
    client.close()
