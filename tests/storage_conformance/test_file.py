"""FileStorage keeps the contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import FileStorage
from pgjq.testing import ManualClock, StorageConformance

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class TestFile(StorageConformance):
    """Every case of the contract that applies."""

    capabilities = FileStorage.capabilities

    @pytest.fixture
    def clock(self) -> ManualClock:
        """A clock that the test moves."""
        return ManualClock()

    @pytest.fixture
    def storage(self, clock: ManualClock, tmp_path: Path) -> Iterator[FileStorage]:
        """An empty storage."""
        storage = FileStorage(tmp_path / "jobs", clock=clock)
        yield storage
        storage.close()

    @pytest.fixture
    def partition(self) -> bool:
        """No tables, and so no partitions: the setting is only kept."""
        return False
