"""MemoryStorage keeps the contract."""

from __future__ import annotations

import pytest

from pgjq import MemoryStorage
from pgjq.testing import ManualClock, StorageConformance


class TestMemory(StorageConformance):
    """Every case of the contract."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        """A clock that the test moves."""
        return ManualClock()

    @pytest.fixture
    def storage(self, clock: ManualClock) -> MemoryStorage:
        """An empty storage."""
        return MemoryStorage(clock=clock)
