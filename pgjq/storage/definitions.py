"""Operations on definitions of queues, of storages with the capability `definitions`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pgjq.definition import Definition
    from pgjq.job import QueueInfo


@dataclass(frozen=True, slots=True)
class SizeWarning:
    """A queue that has grown past the warning size of its definition."""

    queue: str
    count: int
    size: int


class Definitions(Protocol):
    """Further operations of a storage with the capability `definitions`."""

    async def create_queue(self, name: str, definition: Definition) -> None:
        """Define a queue; an existing definition stays as it is.

        PolicyError if it has another policy or partition, QueueNotFoundError if its dead letter queue does not exist.
        """
        ...

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """Change a definition; None removes a setting. Existing jobs keep their settings."""
        ...

    async def delete_queue(self, name: str) -> None:
        """Delete a queue and all its jobs; PolicyError if it is the dead letter queue of another."""
        ...

    async def queues(self, name: str | None = None) -> list[QueueInfo]:
        """List all queues, or one, if it exists."""
        ...

    async def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a queue; claims skip a paused one."""
        ...

    async def blocked_keys(self, name: str) -> list[str]:
        """List the keys that failed jobs block; PolicyError if the queue is not in strict order."""
        ...

    async def redrive(self, queue: str, *, limit: int, to: str | None = None) -> int:
        """Send dead letters back to their queues, or to another one; return how many."""
        ...

    async def observe(self, *, with_endings: bool = True) -> list[SizeWarning]:
        """Store every queue's statistics; return the queues that newly exceed their warning size."""
        ...
