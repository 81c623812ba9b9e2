"""A job that becomes due later is run when it is due, by a worker that was asleep when it came.

These are the cases for which a test must see the worker fall asleep, or move the clock of the storage. All others are
in the worker suite (`pgjq/testing/worker/delays.py`).
`block_timeout` is an hour, so that looking now and then cannot hide a missing wake-up.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Literal

import pytest

from pgjq import (
    AsyncJob,
    AsyncQueue,
    Client,
    FileStorage,
    Job,
    LeasePolicy,
    MemoryStorage,
    NewJob,
    Queue,
    RedisStorage,
    Retry,
    Worker,
)
from pgjq.storage.mailbox import Mailbox
from pgjq.testing import ManualClock, PostgresClock, RedisClock
from tests.worker.conftest import abandon

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage
    from pgjq.testing import Clock

Mode = Literal["sync", "async"]
HOUR = 3600.0
SOON = 0.3
LIMIT = 60
LONG = 10


class Naps:
    """Tells when a worker has looked for work, found none, and gone to sleep."""

    def __init__(self) -> None:
        self.count = 0
        self._changed = threading.Condition()

    def note(self) -> None:
        with self._changed:
            self.count += 1
            self._changed.notify_all()

    def wait(self, after: int = 0) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self.count > after, LIMIT), "the worker does not sleep"


class Runs:
    """Notes which jobs have been run, and lets the test wait for them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self._changed = threading.Condition()

    def note(self, job: Job | AsyncJob) -> None:
        with self._changed:
            self.ids.append(job.id)
            self._changed.notify_all()

    def wait(self, *ids: str) -> None:
        """Wait until exactly these have been run, in this order."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.ids) >= len(ids), LIMIT), f"only {self.ids} were run"
            assert self.ids == list(ids)


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    """See `Naps`."""
    naps, take = Naps(), Mailbox.take

    async def noted(box: Mailbox[Any], timeout: float) -> list[Any]:
        if timeout > LONG:  # A storage may look a few times soon after it fell asleep.
            naps.note()
        return await take(box, timeout)

    monkeypatch.setattr(Mailbox, "take", noted)
    return naps


@pytest.fixture
def runs() -> Runs:
    """See `Runs`."""
    return Runs()


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Whether the queues are sync, with plain functions, or async, with coroutines."""
    return request.param


@pytest.fixture(params=["memory", "file_storage", "postgres", "redis_storage", "valkey_storage"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """A storage that goes by the real time."""
    return MemoryStorage() if request.param == "memory" else request.getfixturevalue(request.param)


@contextmanager
def working(storage: Storage, mode: Mode, handle: Callable[[Any], Any], *names: str, **options: Any) -> Generator[None]:
    """Serve queues in one mode, with two slots: then a worker sleeps also while it runs a job."""
    options = {"block_timeout": HOUR, "concurrency": 2, **options}
    if mode == "sync":
        queues = [Queue(name, storage=storage, **options) for name in names or ("q",)]
        for queue in queues:
            queue.execute(handle)
        with Worker(*queues, concurrency=options["concurrency"]):
            yield
        return

    async def coroutine(job: AsyncJob) -> Any:
        return await asyncio.to_thread(handle, job)

    async def serve() -> None:
        queues = [AsyncQueue(name, storage=storage, **options) for name in names or ("q",)]
        for queue in queues:
            queue.execute(coroutine)
            await queue.start()
        started.set()
        await asyncio.to_thread(finish.wait)
        for queue in queues:
            await queue.stop()
        await storage.operations("async").close()

    started, finish = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        served = pool.submit(lambda: asyncio.run(serve()))
        try:
            assert started.wait(LIMIT)
            yield
        finally:
            finish.set()
            served.result(LIMIT)


def test_a_retry_with_a_delay_is_run(storage: Storage, mode: Mode, naps: Naps, runs: Runs) -> None:
    def fail_twice(job: Any) -> None:
        runs.note(job)
        naps.wait(after)
        if len(runs.ids) < 3:
            raise Retry(delay=SOON)

    with working(storage, mode, fail_twice):
        naps.wait()
        after = naps.count
        Client(storage).enqueue("q", "a", None)
        runs.wait("a", "a", "a")
    assert runs.ids == ["a", "a", "a"]


def test_a_reaped_job_is_run_after_its_delay(storage: Storage, mode: Mode, runs: Runs) -> None:
    policy = LeasePolicy(lease=0.5, heartbeat=0.1, reap_interval=0.1)
    abandon(storage, NewJob("a", None, retry_delay=SOON), policy=policy)
    with working(storage, mode, runs.note, lease_policy=policy):
        runs.wait("a")
    assert runs.ids == ["a"]


# --- a moved clock


@pytest.fixture(params=["memory", "file", "postgres", "redis_storage", "valkey_storage"])
def moved(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Storage, Clock]]:
    """A storage and the clock that it goes by."""
    if request.param in ("memory", "file"):
        clock = ManualClock()
        storage = (
            MemoryStorage(clock=clock) if request.param == "memory" else FileStorage(tmp_path / "jobs", clock=clock)
        )
        yield storage, clock
        storage.close()
        return
    storage = request.getfixturevalue(request.param)
    yield storage, RedisClock(storage) if isinstance(storage, RedisStorage) else PostgresClock(storage.conninfo)


def test_a_moved_clock_wakes_a_sleeping_worker(
    moved: tuple[Storage, Clock], mode: Mode, naps: Naps, runs: Runs
) -> None:
    storage, clock = moved
    with working(storage, mode, runs.note):
        naps.wait()
        Client(storage).enqueue_many("q", [NewJob("b", None, delay=2 * HOUR), NewJob("a", None, delay=HOUR)])
        clock.advance(HOUR)
        runs.wait("a")
        clock.advance(HOUR)
        runs.wait("a", "b")
    assert runs.ids == ["a", "b"]


def test_a_plain_clock_that_jumps_is_noticed(mode: Mode, naps: Naps, runs: Runs) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    storage = MemoryStorage(clock=lambda: now)
    with working(storage, mode, runs.note):
        naps.wait()
        Client(storage).enqueue("q", "a", None, delay=HOUR)
        now += timedelta(seconds=HOUR)
        runs.wait("a")
    assert runs.ids == ["a"]
