"""Directories on a disk in memory, where syncing is quick, and the storages in them."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

from pgjq import FileStorage
from pgjq.testing import ManualClock

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def memory_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk that syncs at once: a kernel that goes on forgets nothing, whatever was synced."""
    shared = Path("/dev/shm")
    if not shared.is_dir():
        yield tmp_path
        return
    with TemporaryDirectory(dir=shared) as directory:
        yield Path(directory)


@pytest.fixture
def directory(memory_disk: Path) -> Path:
    """A directory that a storage makes."""
    return memory_disk / "jobs"


@pytest.fixture
def clock() -> ManualClock:
    """A clock that the test moves."""
    return ManualClock()


@pytest.fixture
def storage(directory: Path, clock: ManualClock) -> Iterator[FileStorage]:
    """A storage in that directory."""
    storage = FileStorage(directory, clock=clock)
    yield storage
    storage.close()
