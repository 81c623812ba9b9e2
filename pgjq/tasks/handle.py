"""Handles: what enqueueing a task returns, to follow its job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pgjq.convert import shaped

if TYPE_CHECKING:
    from datetime import timedelta

    from pgjq.job import CancelResult, EnqueueResult, JobStatus
    from pgjq.queue import AsyncQueue, Queue

R = TypeVar("R")


class HandleBase(Generic[R]):
    """What both handles share."""

    def __init__(self, source: Any, enqueued: EnqueueResult, returns: Any) -> None:
        self._source = source
        self._returns = returns
        self.enqueued = enqueued
        """The answer of the enqueue: whether the job is new, a duplicate, or has a result already."""

    @property
    def id(self) -> str:
        """The job's id."""
        return self.enqueued.id

    @property
    def queue(self) -> str:
        """The queue's name."""
        return self._source.name

    def _converted(self, result: Any) -> R:
        return shaped(self._returns, result, "the result")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.queue}/{self.id}>"


class Handle(HandleBase[R]):
    """A job of a task on a `Queue`."""

    _source: Queue

    def status(self) -> JobStatus | None:
        """Return the job's status, or None if there is no such job."""
        return self._source.get_status(self.id)

    def result(self, timeout: float | timedelta = 30.0) -> R:
        """Wait for the job's end and return its result in the task's return type; see `Client.wait`."""
        return self._converted(self._source.client.wait(self.queue, self.id, timeout=timeout))

    def cancel(self, *, active: bool = False) -> CancelResult:
        """Cancel the job; see `Client.cancel`."""
        return self._source.cancel(self.id, active=active)

    def retry(self) -> JobStatus:
        """Queue the failed or cancelled job again; see `Client.retry`."""
        return self._source.client.retry(self.queue, self.id)


class AsyncHandle(HandleBase[R]):
    """A job of a task on an `AsyncQueue`; its methods are those of `Handle`, as coroutines."""

    _source: AsyncQueue

    async def status(self) -> JobStatus | None:
        """Return the job's status, or None if there is no such job."""
        return await self._source.get_status(self.id)

    async def result(self, timeout: float | timedelta = 30.0) -> R:
        """Wait for the job's end and return its result in the task's return type; see `Client.wait`."""
        return self._converted(await self._source.client.wait(self.queue, self.id, timeout=timeout))

    async def cancel(self, *, active: bool = False) -> CancelResult:
        """Cancel the job; see `Client.cancel`."""
        return await self._source.cancel(self.id, active=active)

    async def retry(self) -> JobStatus:
        """Queue the failed or cancelled job again; see `Client.retry`."""
        return await self._source.client.retry(self.queue, self.id)
