"""Batch concurrent requests into one statement.

A hundred tasks that each read one row would send a hundred statements, and sending is most of the cost. The first
request goes out at once; requests that arrive while it is in flight go out as one batch when it returns. So a single
request never waits, and the more requests there are, the less each costs. After an error the batcher retries each
request alone, so that each caller gets its own error; StorageUnavailableError goes to all of them. Sync callers each
send their own statement.
"""

from __future__ import annotations

import asyncio
import builtins
from collections import deque
from contextvars import Context
from math import inf
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from pgjq.deadline import current_deadline
from pgjq.errors import StorageUnavailableError
from pgjq.storage.per_loop import PerLoop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgjq.blocking import Mode

T = TypeVar("T")
R = TypeVar("R")

# A row may be a megabyte.
AT_ONCE: Final = 50


class Batcher(Generic[T, R]):
    """Batch requests of one kind; `work` returns the results of a batch, in order."""

    def __init__(self, mode: Mode, work: Callable[[list[T]], Awaitable[list[R]]], under_way: int = 1) -> None:
        self._mode = mode
        self._work = work
        self._batches = PerLoop(lambda: _Batch(work, under_way))

    async def do(self, request: T) -> R:
        """Return the result of a request, which may share a statement with others."""
        if self._mode == "sync":
            return (await self._work([request]))[0]
        return await _in_time(self._batches.get().add(request))


class _Batch(Generic[T, R]):
    """The requests of one event loop."""

    def __init__(self, work: Callable[[list[T]], Awaitable[list[R]]], under_way: int) -> None:
        self._work = work
        self._free = under_way
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, request: T) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((request, future))
        if self._free:
            self._free -= 1
            # The task works for several callers, so it must not inherit the deadline of the first.
            task = loop.create_task(self._run_batches(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def _run_batches(self) -> None:
        try:
            while batch := self._next():
                await self._send(batch)
        finally:
            self._free += 1

    def _next(self) -> list[tuple[T, asyncio.Future[R]]]:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        while self._waiting and len(batch) < AT_ONCE:
            request, future = self._waiting.popleft()
            if not future.done():  # Else the caller has given up.
                batch.append((request, future))
        return batch

    async def _send(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            done: list[Any] = await self._work([request for request, _ in batch])
        except Exception as error:  # noqa: BLE001
            if len(batch) > 1 and not isinstance(error, StorageUnavailableError):
                for one in batch:
                    await self._send([one])
                return
            for _, future in batch:
                if not future.done():
                    future.set_exception(error)
            return
        for (_, future), result in zip(batch, done, strict=True):
            if not future.done():
                future.set_result(result)


async def _in_time(future: asyncio.Future[R]) -> R:
    left = current_deadline().left
    try:
        async with asyncio.timeout(None if left == inf else left):
            return await future
    except builtins.TimeoutError as error:
        raise StorageUnavailableError("the storage did not answer in time") from error
