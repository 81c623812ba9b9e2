"""A waiter is told at once in every way a job can end or vanish, whichever process causes it.

The waiter's timeout is an hour and its fallback polling is slower than any test, so that only a notification can
explain an answer. Another storage object on the same data ends the job, as another process would.
"""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import (
    AsyncClient,
    Client,
    Discard,
    FileStorage,
    Job,
    JobCancelledError,
    JobFailedError,
    JobNotFoundError,
    LeasePolicy,
    PostgresStorage,
    RedisStorage,
)
from pgjq.blocking import drive
from pgjq.job import JobError
from pgjq.options import DEFAULT_SETTINGS, Submission
from pgjq.outcome import Completed, Failed
from pgjq.storage import result_waiter
from pgjq.storage.base import Settlement
from pgjq.storage.file import wakeup
from tests.request_response.conftest import serving, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pgjq.outcome import Outcome
    from pgjq.storage.base import Storage

HOUR = 3600.0
LIMIT = 60.0
SHORT_LEASE = LeasePolicy(lease=0.03, heartbeat=0.01)
SHORT_ATTEMPT = LeasePolicy(lease=600, expire=0.03)


@pytest.fixture(autouse=True)
def _no_polling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(result_waiter, "SOON", HOUR)
    monkeypatch.setattr(result_waiter, "SELDOM", HOUR)
    monkeypatch.setattr(wakeup, "FLOOR", HOUR)


@pytest.fixture
def elsewhere(storage: Storage, request: pytest.FixtureRequest) -> Iterator[Client]:
    """A client with connections and files of its own, where the storage has any."""
    match storage:
        case PostgresStorage():
            other: Storage = PostgresStorage(storage.conninfo)
        case RedisStorage():
            other = RedisStorage(request.getfixturevalue("redis_url"), prefix=storage.prefix)
        case FileStorage():
            other = FileStorage(storage.layout.directory)
        case _:
            other = storage
    with Client(other) as client:
        yield client


def claim(client: Client, policy: LeasePolicy | None = None) -> Any:
    ops = client.storage.operations("sync")
    (job,) = drive(ops.claim(["q"], worker="w", limit=1, policy=policy or LeasePolicy()))
    return job


def settle(client: Client, outcome: Outcome) -> None:
    drive(client.storage.operations("sync").settle([Settlement(claim(client).lease, outcome)]))


def complete(client: Client) -> None:
    settle(client, Completed(b"1"))


def fail(client: Client) -> None:
    settle(client, Failed(JobError("ValueError", "boom", None)))


def discard(client: Client) -> None:
    def never(_job: Job) -> None:
        raise Discard("never")

    with serving(client.storage, never):
        until(lambda: client.get_status("q", "a").state == "failed")  # type: ignore[union-attr]


def cancel(client: Client) -> None:
    assert client.cancel("q", "a").status == "cancelled"


def cancel_running(client: Client) -> None:
    job = claim(client)
    assert client.cancel("q", "a", active=True).status == "processing"
    drive(client.storage.operations("sync").settle([Settlement(job.lease, Completed(b"1"))]))


def cancel_many(client: Client) -> None:
    assert client.cancel_many("q") == 1


def reap(client: Client) -> None:
    claim(client, SHORT_LEASE)
    until(lambda: drive(client.storage.operations("sync").reap()))


def reap_cancelled(client: Client) -> None:
    claim(client, SHORT_LEASE)
    client.cancel("q", "a", active=True)
    until(lambda: drive(client.storage.operations("sync").reap()))


def expire(client: Client) -> None:
    claim(client, SHORT_ATTEMPT)
    until(lambda: drive(client.storage.operations("sync").reap()))


def delete_job(client: Client) -> None:
    assert client.delete_job("q", "a")


def delete_many(client: Client) -> None:
    assert client.delete_many("q") == 1


def delete_queue(client: Client) -> None:
    client.delete_queue("q")


def delete_queue_of_running_job(client: Client) -> None:
    claim(client)
    client.delete_queue("q")


def prune_waiting(client: Client) -> None:
    until(lambda: drive(client.storage.operations("sync").prune()))


OPTIONS: dict[Callable[[Client], None], dict[str, Any]] = {
    reap: {"max_attempts": 1},
    expire: {"max_attempts": 1},
    prune_waiting: {"retention_seconds": 1},
}
STORAGES = ("memory", "postgres", "redis_storage", "file_storage")
WITH_DEFINITIONS = ("memory", "postgres", "file_storage")
ENDINGS: list[tuple[Callable[[Client], None], type[Exception] | None]] = [
    (complete, None),
    (fail, JobFailedError),
    (discard, JobFailedError),
    (cancel, JobCancelledError),
    (cancel_running, JobCancelledError),
    (cancel_many, JobCancelledError),
    (reap, JobFailedError),
    (reap_cancelled, JobCancelledError),
    (expire, JobFailedError),
    (delete_job, JobNotFoundError),
    (delete_many, JobNotFoundError),
    (delete_queue, JobNotFoundError),
    (delete_queue_of_running_job, JobNotFoundError),
    (prune_waiting, JobNotFoundError),
]
CASES = [
    pytest.param(name, act, error, id=f"{name}-{act.__name__}")
    for name in STORAGES
    for act, error in ENDINGS
    if name in WITH_DEFINITIONS or act not in (delete_queue, delete_queue_of_running_job)
]


def wait_blocking(storage: Storage, options: dict[str, Any]) -> Any:
    return Client(storage).enqueue_and_wait("q", "a", 1, timeout=HOUR, **options)


def wait_async(storage: Storage, options: dict[str, Any]) -> Any:
    async def wait() -> Any:
        try:
            return await AsyncClient(storage).enqueue_and_wait("q", "a", 1, timeout=HOUR, **options)
        finally:
            await storage.operations("async").close()

    return asyncio.run(wait())


# The notification does not depend on the waiter's mode: async waits are tested with one ending of each kind.
WAITS = [
    pytest.param(*one.values, wait, id=f"{one.id}-{mode}")
    for one in CASES
    for mode, wait in (("sync", wait_blocking), ("async", wait_async))
    if mode == "sync" or one.values[1] in (complete, fail, cancel_running, delete_job, delete_queue)
]


@pytest.mark.parametrize(("storage", "act", "error", "wait"), WAITS, indirect=["storage"])
def test_a_waiter_is_told(
    storage: Storage,
    elsewhere: Client,
    wait: Callable[..., Any],
    act: Callable[[Client], None],
    error: type[Exception] | None,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait, storage, OPTIONS.get(act, {}))
        until(lambda: waiting.done() or elsewhere.get_status("q", "a"))
        act(elsewhere)
        told = outcome_of(waiting, storage)
    assert told is None if error is None else isinstance(told, error)


def outcome_of(waiting: Future[Any], storage: Storage) -> BaseException | None:
    """Return what the wait raised; a waiter that is not told is released by closing its storage, and fails the test."""
    try:
        return waiting.exception(LIMIT)
    except TimeoutError:
        storage.close()
        raise


@pytest.mark.parametrize(("storage", "act", "error"), CASES, indirect=["storage"])
def test_a_waiter_that_joined_is_told(
    storage: Storage, elsewhere: Client, act: Callable[[Client], None], error: type[Exception] | None
) -> None:
    """The job is there when the waiter comes, and ends only after the waiter has looked at it and fallen asleep."""
    elsewhere.enqueue("q", "a", 1, **OPTIONS.get(act, {}))
    waiting = Sleeper(storage)
    act(elsewhere)
    told = waiting.result()
    state = {JobFailedError: "failed", JobCancelledError: "cancelled", None: "completed"}.get(error)  # type: ignore[arg-type]
    assert (told.state if told else None) == state


@pytest.mark.parametrize("storage", WITH_DEFINITIONS, indirect=True)
def test_a_waiter_for_a_dead_letter_is_told_that_it_went_back(storage: Storage, elsewhere: Client) -> None:
    elsewhere.create_queue("letters")
    elsewhere.create_queue("q", dead_letter="letters")
    elsewhere.enqueue("q", "a", 1)
    fail(elsewhere)
    (letter,) = elsewhere.find_jobs("letters")
    waiting = Sleeper(storage, "letters", letter.id)
    assert elsewhere.redrive("letters") == 1
    assert waiting.result() is None


def test_a_deleted_queue_sends_one_notification_for_all_its_waiters(postgres: PostgresStorage) -> None:
    client = Client(postgres)
    client.enqueue_many("q", [(f"{n}", n) for n in range(100)])
    client.enqueue("other", "a", 1)
    waiting, other = [Sleeper(postgres, "q", f"{n}") for n in range(20)], Sleeper(postgres, "other", "a")
    with psycopg.connect(postgres.conninfo, autocommit=True) as listener:
        listener.execute('listen "pgjq.results"')
        client.delete_queue("q")
        assert [sleeper.result() for sleeper in waiting] == [None] * 20
        assert [json.loads(heard.payload) for heard in listener.notifies(timeout=0)] == [[["q", None, "deleted"]]]
    client.cancel("other", "a")
    assert other.result().state == "cancelled"


def test_a_waiter_for_a_job_that_was_retried_at_once_is_told(storage: Storage, elsewhere: Client) -> None:
    """The job has ended and lives again before the waiter looks: the wait goes on, or ends with the first end."""
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(wait_blocking, storage, {})
        until(lambda: elsewhere.get_status("q", "a"))
        for _ in range(20):
            elsewhere.cancel("q", "a")
            elsewhere.retry("q", "a")
        complete(elsewhere)
        told = outcome_of(waiting, storage)
    assert told is None or isinstance(told, JobCancelledError)


class Sleeper:
    """A waiter that has joined a job and is asleep."""

    def __init__(self, storage: Storage, queue: str = "q", job_id: str = "a") -> None:
        self._storage = storage
        self._expectation: Any = drive(storage.operations("sync").result_waiter(queue, job_id))
        self._pool = ThreadPoolExecutor(1)
        asleep, box = threading.Event(), self._expectation._box
        take = box.take

        async def note_take(timeout: float) -> Any:
            asleep.set()
            return await take(timeout)

        box.take = note_take
        assert drive(self._expectation.enqueue(Submission(job_id, b"1", DEFAULT_SETTINGS))).status == "duplicate"
        self._answer = self._pool.submit(drive, self._expectation.answer(HOUR))
        assert asleep.wait(60)

    def result(self) -> Any:
        try:
            failure = outcome_of(self._answer, self._storage)
            assert failure is None, failure
            return self._answer.result()
        finally:
            self._pool.shutdown()
            drive(self._expectation.close())
