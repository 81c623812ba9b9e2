"""MemoryStorage keeps the contract."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from pgjq import Client, MemoryStorage
from pgjq.blocking import drive
from pgjq.storage.mailbox import Mailbox
from pgjq.testing import ManualClock, StorageConformance

if TYPE_CHECKING:
    from pgjq.blocking import Colour


class TestMemory(StorageConformance):
    """Every case of the contract that applies."""

    promises = MemoryStorage.promises

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


@pytest.mark.parametrize("colour", ["blocking", "async"])
def test_a_sleeper_looks_once_and_is_woken_and_does_not_poll(monkeypatch: pytest.MonkeyPatch, colour: Colour) -> None:
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
        nap = storage.operations(colour).wait_for_work(["q"], 3600, poll=0.001)
        sleeper = pool.submit(drive if colour == "blocking" else asyncio.run, nap)  # pyright: ignore[reportArgumentType]
        assert asleep.wait(60)
        Client(storage).enqueue("q", "a", None)
        assert sleeper.result(60)
    assert len(waits) == 1
    assert waits[0] > 3000
