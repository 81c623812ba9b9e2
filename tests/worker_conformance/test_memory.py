"""Workers on MemoryStorage behave as the suite says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import MemoryStorage
from pgjq.testing import WorkerConformance

if TYPE_CHECKING:
    from collections.abc import Iterator


class TestMemory(WorkerConformance):
    """Every case that applies."""

    capabilities = MemoryStorage.capabilities

    @pytest.fixture
    def storage(self) -> Iterator[MemoryStorage]:
        """Return an empty storage."""
        storage = MemoryStorage()
        yield storage
        storage.close()
