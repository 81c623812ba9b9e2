"""Every storage with a clock that stands still."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pgjq import FileStorage, MemoryStorage
from pgjq.testing import ManualClock, PostgresClock, RedisClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Kit(NamedTuple):
    """A storage and its clock."""

    storage: Any
    clock: Any


@pytest.fixture(params=["memory", "file", "postgres", "redis"])
def kit(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kit]:
    """Every storage."""
    clock: Any = ManualClock()
    match request.param:
        case "memory":
            yield Kit(MemoryStorage(clock=clock), clock)
        case "file":
            storage = FileStorage(tmp_path / "jobs", clock=clock)
            yield Kit(storage, clock)
            storage.close()
        case "postgres":
            storage = request.getfixturevalue("postgres")
            clock = PostgresClock(storage.conninfo)
            yield Kit(storage, clock)
            clock.restore()
        case _:
            storage = request.getfixturevalue("redis_storage")
            clock = RedisClock(storage)
            yield Kit(storage, clock)
            clock.restore()
