"""A worker that answers requests, on every storage that workers can run on."""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import FileStorage, LeasePolicy, MemoryStorage, Queue

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage

LIVELY = LeasePolicy(lease=1, heartbeat=0.25, reap_interval=0.1)


@pytest.fixture
def file_storage(tmp_path: Path) -> Iterator[FileStorage]:
    """A storage in a directory."""
    storage = FileStorage(tmp_path / "jobs")
    yield storage
    storage.close()


WITH_DEFINITIONS = ["memory", "postgres", "file_storage"]


@pytest.fixture(params=[*WITH_DEFINITIONS, "redis_storage"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """A storage by the server's clock."""
    return MemoryStorage() if request.param == "memory" else request.getfixturevalue(request.param)


@contextmanager
def serving(storage: Storage, handler: Callable[..., Any], **options: Any) -> Generator[Queue]:
    """Serve the queue `q` in this process."""
    queue = Queue("q", storage=storage, **{"concurrency": 4, "lease_policy": LIVELY} | options)
    queue.on("error", lambda _error: None)
    queue.execute(handler)
    with queue:
        yield queue


def until(holds: Callable[[], Any]) -> Any:
    """Ask until the answer is yes; the suite's time-out is the limit."""
    while not (answer := holds()):
        time.sleep(0.01)
    return answer
