"""Workers on FileStorage behave as the suite says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import FileStorage
from pgjq.testing import WorkerConformance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


class TestFile(WorkerConformance):
    """Every case that applies."""

    capabilities = FileStorage.capabilities

    @pytest.fixture
    def storage(self, tmp_path: Path) -> Iterator[FileStorage]:
        """Return an empty storage."""
        storage = FileStorage(tmp_path / "jobs")
        yield storage
        storage.close()

    @pytest.fixture
    def reopen(self, tmp_path: Path) -> Callable[[], FileStorage]:
        """Open the same directory."""
        return lambda: FileStorage(tmp_path / "jobs")

    @pytest.fixture
    def source(self, tmp_path: Path) -> str:
        """Open the same directory in another process."""
        return f"pgjq.FileStorage({str(tmp_path / 'jobs')!r})"
