"""The `Definitions` of storages that keep their jobs in a model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from pgjq.storage.model import queues

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from pgjq.definition import Definition
    from pgjq.job import QueueInfo
    from pgjq.storage.base import SizeWarning
    from pgjq.storage.model.jobs import Jobs

R = TypeVar("R")


class ModelDefinitions(ABC):
    """The part of `ModelOperations` that concerns queues."""

    @abstractmethod
    async def _do(self, verb: Callable[[Jobs], R]) -> R:
        """Do an operation completely or not at all."""

    async def create_queue(self, name: str, definition: Definition) -> None:
        """See `Definitions`."""
        await self._do(partial(queues.create, name=name, definition=definition))

    async def update_queue(self, name: str, changes: Mapping[str, Any]) -> None:
        """See `Definitions`."""
        await self._do(partial(queues.update, name=name, changes=changes))

    async def delete_queue(self, name: str) -> None:
        """See `Definitions`."""
        await self._do(partial(queues.delete, name=name))

    async def queues(self, name: str | None = None) -> list[QueueInfo]:
        """See `Definitions`."""
        return await self._do(partial(queues.show, name=name))

    async def pause(self, name: str, *, paused: bool) -> None:
        """See `Definitions`."""
        await self._do(partial(queues.pause, name=name, paused=paused))

    async def blocked_keys(self, name: str) -> list[str]:
        """See `Definitions`."""
        return await self._do(partial(queues.blocked_keys, name=name))

    async def cancel_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._do(partial(queues.cancel_many, queue=queue, job_ids=job_ids))

    async def retry_many(self, queue: str, job_ids: Sequence[str]) -> int:
        """See `Operations`."""
        return await self._do(partial(queues.retry_many, queue=queue, job_ids=job_ids))

    async def redrive(self, queue: str, *, limit: int, to: str | None = None) -> int:
        """See `Definitions`."""
        return await self._do(partial(queues.redrive, queue=queue, limit=limit, to=to))

    async def observe(self, *, with_endings: bool = True) -> list[SizeWarning]:
        """See `Definitions`; always counts all states, because one pass does."""
        del with_endings
        return await self._do(queues.observe)
