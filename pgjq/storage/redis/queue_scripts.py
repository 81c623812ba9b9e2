"""Run the Lua scripts of queues, and keep the list of queues.

A script is one round trip; its header (`lua/`) states its guarantees. The list of queues is a key of its own: in a
cluster it may be on another server than the queues.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pgjq.storage.redis.scripts import script

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.storage.redis.resp import Word
    from pgjq.storage.redis.storage import Shared
    from pgjq.storage.redis.transport import Transport


class QueueScripts:
    """The scripts of one mode, over its transport."""

    def __init__(self, transport: Transport, shared: Shared) -> None:
        self.transport = transport
        self.keys = shared.keys
        self.shared = shared

    async def run(self, name: str, queue: str, request: bytes = b"[]", *blobs: bytes) -> Any:
        """Run a queue's script."""
        keys, shared = self.keys, self.shared
        words: tuple[Word, ...] = (
            *(shared.clock(), queue, keys.events, keys.wake, keys.results, shared.publish_uncounted),
            *(request, *blobs),
        )
        return await self.transport.execute(script(name), keys.of_queue(queue), words)

    async def enqueue(self, queue: str, arguments: Sequence[bytes]) -> Sequence[Any]:
        """Run enqueue.lua; put a queue without the flag `listed` on the list first."""
        while (reply := await self.run("enqueue", queue, *arguments)) is None:
            await self._list(queue)
        return reply

    async def _list(self, queue: str) -> None:
        """Put a queue on the list of queues, and then the flag `listed` into the queue.

        In this order a queue with the flag is on the list, and a queue without the flag has no jobs. It is put on the
        list once more, because `unlist` of another process may have come between: it took the queue off the list, and
        found no flag yet.
        """
        await self.transport.command("SADD", self.keys.queues, queue)
        await self.run("list_queue", queue)
        await self.transport.command("SADD", self.keys.queues, queue)

    async def unlist(self, queue: str) -> None:
        """Take a queue off the list, unless it gets a job meanwhile; its next job lists it again.

        If the process dies in between, the queue is not on the list until a worker that serves it is seen.
        """
        await self.transport.command("SREM", self.keys.queues, queue)
        if not await self.run("unlist_queue", queue):
            await self.transport.command("SADD", self.keys.queues, queue)

    async def queues(self) -> list[str]:
        """Return the names on the list of queues."""
        return sorted(name.decode() for name in await self.transport.command("SMEMBERS", self.keys.queues))
