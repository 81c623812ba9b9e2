"""Many callers' wishes in one statement.

A hundred tasks that each ask for one row are a hundred statements, and most of the work is asking. Here the first one
asks at once, and whoever comes while that is on its way goes together with the others, as soon as it is back: alone
nobody waits, and the more there are, the cheaper each is. After an error each is tried again alone, so that the error
is its own; a storage that is away is everybody's. Blocking callers each ask for themselves.
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

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pgjq.blocking import Mode

T = TypeVar("T")
R = TypeVar("R")

# Answers may be a megabyte each.
AT_ONCE: Final = 50


class Batcher(Generic[T, R]):
    """One kind of wish; `work` fulfils some of them, in their order."""

    def __init__(self, mode: Mode, work: Callable[[list[T]], Awaitable[list[R]]], under_way: int = 1) -> None:
        self._mode = mode
        self._work = work
        self._under_way = under_way
        self._by_loop: dict[asyncio.AbstractEventLoop, _Batch[T, R]] = {}

    async def do(self, wish: T) -> R:
        """Have a wish fulfilled, together with others' if there are any."""
        if self._mode == "sync":
            return (await self._work([wish]))[0]
        loop = asyncio.get_running_loop()
        gathering = self._by_loop.get(loop)
        if gathering is None:
            self._by_loop = {known: g for known, g in self._by_loop.items() if not known.is_closed()}
            gathering = self._by_loop[loop] = _Batch(self._work, self._under_way)
        return await _in_time(gathering.add(wish))


class _Batch(Generic[T, R]):
    """Those of one event loop."""

    def __init__(self, work: Callable[[list[T]], Awaitable[list[R]]], under_way: int) -> None:
        self._work = work
        self._free = under_way
        self._waiting: deque[tuple[T, asyncio.Future[R]]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()

    def add(self, wish: T) -> asyncio.Future[R]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        self._waiting.append((wish, future))
        if self._free:
            self._free -= 1
            # The work is for others as well, so it does not have the deadline of the one who began it.
            task = loop.create_task(self._go(), context=Context())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return future

    async def _go(self) -> None:
        try:
            while batch := self._next():
                await self._fulfil(batch)
        finally:
            self._free += 1

    def _next(self) -> list[tuple[T, asyncio.Future[R]]]:
        batch: list[tuple[T, asyncio.Future[R]]] = []
        while self._waiting and len(batch) < AT_ONCE:
            wish, future = self._waiting.popleft()
            if not future.done():  # Else whoever wished has given up.
                batch.append((wish, future))
        return batch

    async def _fulfil(self, batch: list[tuple[T, asyncio.Future[R]]]) -> None:
        try:
            done: list[Any] = await self._work([wish for wish, _ in batch])
        except Exception as error:  # noqa: BLE001
            if len(batch) > 1 and not isinstance(error, StorageUnavailableError):
                for one in batch:
                    await self._fulfil([one])
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
