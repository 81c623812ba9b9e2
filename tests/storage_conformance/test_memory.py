"""MemoryStorage keeps the contract."""

from __future__ import annotations

import asyncio
import gc
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, MemoryStorage
from pgjq.blocking import drive
from pgjq.storage.mailbox import Mailbox
from pgjq.testing import ManualClock, StorageConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pgjq.blocking import Mode


class TestMemory(StorageConformance):
    """Every case of the contract that applies."""

    capabilities = MemoryStorage.capabilities

    @pytest.fixture
    def clock(self) -> ManualClock:
        """A clock that the test moves."""
        return ManualClock()

    @pytest.fixture
    def storage(self, clock: ManualClock) -> MemoryStorage:
        """An empty storage."""
        return MemoryStorage(clock=clock)

    @pytest.fixture
    def partition(self) -> bool:
        """No tables, and so no partitions: the setting is only kept."""
        return False


class Naps:
    """The naps of sleepers of a storage, each with its length; a test can wait for one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lengths: list[float] = []
        self._begun = threading.Semaphore(0)
        take = Mailbox.take

        async def noted(box: Mailbox[bool], timeout: float) -> list[bool]:
            self.lengths.append(timeout)
            self._begun.release()
            return await take(box, timeout)

        monkeypatch.setattr(Mailbox, "take", noted)

    def wait(self) -> float:
        """Wait for a nap that was not waited for before, and return its length."""
        assert self._begun.acquire(timeout=60)
        return self.lengths[-1]


@pytest.fixture
def naps(monkeypatch: pytest.MonkeyPatch) -> Naps:
    """See `Naps`."""
    return Naps(monkeypatch)


@contextmanager
def sleeping(storage: MemoryStorage, *queues: str) -> Generator[Future[bool]]:
    """Have a sleeper on some queues, until the storage is closed."""
    with ThreadPoolExecutor(1) as pool:
        sleeper = pool.submit(drive, storage.operations("sync").wait_for_work(queues, 3600, 3600))
        try:
            yield sleeper
        finally:
            storage.close()


def test_a_thousand_delayed_jobs_cut_one_nap_short(naps: Naps) -> None:
    storage = MemoryStorage(clock=ManualClock())
    client = Client(storage)
    with sleeping(storage, "q") as sleeper:
        assert naps.wait() == pytest.approx(3600, abs=60)
        for n in range(1000):
            client.enqueue("q", str(n), None, delay=1000 + n)
        assert naps.wait() == 1000
        client.enqueue("q", "sooner", None, delay=500)
        assert naps.wait() == 500
        assert len(naps.lengths) == 3
        client.enqueue("q", "now", None)
        assert sleeper.result(60)


def test_a_sleeper_is_not_disturbed_by_queues_that_it_does_not_serve_or_that_are_paused(naps: Naps) -> None:
    storage = MemoryStorage(clock=ManualClock())
    client = Client(storage)
    client.create_queue("paused")
    client.pause_queue("paused")
    client.enqueue("other", "before", None, delay=10)
    with sleeping(storage, "q", "paused") as sleeper:
        assert naps.wait() == pytest.approx(3600, abs=60)
        for queue in ("other", "paused"):
            client.enqueue(queue, "later", None, delay=5)
            client.enqueue(queue, "now", None)
        client.enqueue("q", "a", None, delay=20)
        assert naps.wait() == 20
        assert len(naps.lengths) == 2
        client.resume_queue("paused")
        assert sleeper.result(60)


def test_a_job_that_was_withdrawn_keeps_no_sleeper_awake(naps: Naps) -> None:
    storage = MemoryStorage(clock=ManualClock())
    client = Client(storage)
    client.enqueue("q", "a", None, delay=10)
    client.enqueue("q", "b", None, delay=100)
    client.cancel("q", "a")
    with sleeping(storage, "q") as sleeper:
        assert naps.wait() == 100
        client.delete_job("q", "b")
        client.enqueue("q", "c", None)
        assert sleeper.result(60)


def test_a_plain_clock_is_read_again_only_while_a_job_waits_for_its_time(naps: Naps) -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    storage = MemoryStorage(clock=lambda: now)
    with sleeping(storage, "q") as sleeper:
        assert naps.wait() == pytest.approx(3600, abs=60)
        Client(storage).enqueue("q", "a", None, delay=10)
        assert [naps.wait() for _ in range(3)] == [0.1] * 3
        now += timedelta(seconds=10)
        assert sleeper.result(60)


def test_a_clock_that_is_moved_has_forgotten_storages_that_are_gone() -> None:
    told: list[str] = []

    class Told(ManualClock):
        def subscribe(self, moved: Callable[[], None]) -> Callable[[], None]:
            end = super().subscribe(moved)
            return lambda: (told.append("ended"), end())[1]

    clock = Told()
    storage = MemoryStorage(clock=clock)
    clock.advance(1)
    del storage
    gc.collect()
    assert told == ["ended"]
    clock.advance(1)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_sleeper_looks_once_and_is_woken_and_does_not_poll(monkeypatch: pytest.MonkeyPatch, mode: Mode) -> None:
    """A poll would wait for a millisecond, as often as it takes; this waits once, for as long as it may."""
    storage, asleep = MemoryStorage(), threading.Event()
    waits: list[float] = []
    take = Mailbox.take

    async def noted(box: Mailbox[None], timeout: float) -> list[None]:
        waits.append(timeout)
        asleep.set()
        return await take(box, timeout)

    monkeypatch.setattr(Mailbox, "take", noted)
    with ThreadPoolExecutor(1) as pool:
        nap = storage.operations(mode).wait_for_work(["q"], 3600, poll=0.001)
        sleeper = pool.submit(drive if mode == "sync" else asyncio.run, nap)  # pyright: ignore[reportArgumentType]
        assert asleep.wait(60)
        Client(storage).enqueue("q", "a", None)
        assert sleeper.result(60)
    assert len(waits) == 1
    assert waits[0] > 3000
