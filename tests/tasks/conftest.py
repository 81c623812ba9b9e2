"""Every storage, in both modes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pgjq import FileStorage, MemoryStorage
from pgjq.testing.worker.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage
    from pgjq.testing.worker.harness import Mode


@pytest.fixture
def file_storage(tmp_path: Path) -> Iterator[FileStorage]:
    """A storage in a directory."""
    storage = FileStorage(tmp_path / "jobs")
    yield storage
    storage.close()


@pytest.fixture(params=["memory", "file_storage", "postgres", "redis_storage"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """Every storage."""
    return MemoryStorage() if request.param == "memory" else request.getfixturevalue(request.param)


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Queue and Client, or AsyncQueue and AsyncClient."""
    return request.param


@pytest.fixture
def harness(storage: Storage, mode: Mode) -> Harness:
    """Queues and clients of a storage in a mode."""
    return Harness(storage, mode, lambda: storage)


@pytest.fixture(params=["sync", "async"])
def memory(request: pytest.FixtureRequest) -> Harness:
    """MemoryStorage alone, in both modes: for behaviour that no storage has a part in."""
    storage = MemoryStorage()
    return Harness(storage, request.param, lambda: storage)
