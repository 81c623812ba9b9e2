"""A queue on every storage that workers can run on, and the means to wait for what happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pgjq import MemoryStorage

if TYPE_CHECKING:
    from pgjq.storage.base import Storage


@pytest.fixture(params=["memory", "postgres", "redis"])
def storage(request: pytest.FixtureRequest) -> Storage:
    """A storage by the server's clock."""
    if request.param == "memory":
        return MemoryStorage()
    return request.getfixturevalue("postgres" if request.param == "postgres" else "redis_storage")


class Heard:
    """Collects events, and waits for them."""

    def __init__(self, queue: Any, *names: str) -> None:
        import threading

        self.events: list[Any] = []
        self._changed = threading.Condition()
        for name in names:
            queue.on(name, self._hear)

    def _hear(self, event: Any) -> None:
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def wait(self, count: int = 1) -> list[Any]:
        """Return the events once there are so many of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.events) >= count, 60), self.events
            return list(self.events)
