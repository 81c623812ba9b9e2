"""A network that a test can break: a relay between workers and the server, on a port of its own.

It passes on, cuts what is open, refuses what is new, goes silent, as a dead router does, or forgets what is open, as a
firewall does. With a `Trap` it reads the messages of PostgreSQL's protocol on their way, and cuts the connection at one
of them, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from tests.threaded_server import ThreadedServer

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.threaded_server import Streams

Half = Literal["unsent", "unanswered", "torn"]
READY = b"Z"


@dataclass
class Trap:
    """Cut at the first statement with `words` in it, of a connection that said `after` before; then never again.

    `unsent`: the statement never reaches the server. `unanswered`: the server has done it, and its answer is lost.
    `torn` (Redis alone): half of its answer arrives.
    With `hold` the connection is not cut: it stays open, and nothing passes any more.
    """

    words: bytes
    half: Half
    after: bytes = b""
    hold: bool = False
    sprung: threading.Event = field(default_factory=threading.Event)


class Proxy(ThreadedServer):
    """A relay to the server of a connection string; `conninfo` leads through it."""

    def __init__(self, upstream: str, trap: Trap | None = None) -> None:
        self.trap = trap
        self._refusing = False
        self.refused = 0  # How many connections were refused.
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.generation = 0
        super().__init__(upstream)

    def refuse(self) -> None:
        """Cut every connection, and every new one at once."""
        self._run(self._refuse)

    def silence(self) -> None:
        """Pass nothing on, and say nothing about it."""
        self._run(self._flowing.clear)

    def cut(self) -> None:
        """Cut every connection; new ones are welcome."""
        self._run(self._abort)

    def forget(self) -> None:
        """Pass nothing on any more, either way, on the connections of now, and keep them open; new ones are welcome."""
        self.generation += 1

    def restore(self) -> None:
        """Be a good network again; what was open in the silence goes on where it was."""
        self._run(self._restore)

    def accepts(self) -> bool:
        self.refused += self._refusing
        return super().accepts() and not self._refusing

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            server = await self._open_upstream()
            self._writers.add(server[1])
            try:
                await self._relay((reader, writer), server)
            finally:
                self._discard(server[1])

    def tapped(self, trap: Trap, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        """Pass messages both ways, and read them."""
        return _Tapped(trap, *client, *server).ways()

    def _refuse(self) -> None:
        self._refusing = True
        self._abort()

    def _restore(self) -> None:
        self._refusing = False
        self._flowing.set()

    def _run(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()

        self._call(run())

    async def _relay(self, client: Streams, server: Streams) -> None:
        """Pass messages both ways until one of them ends."""
        if self.trap is None:
            ways = [self._pump(client[0], server[1]), self._pump(server[0], client[1])]
        else:
            ways = self.tapped(self.trap, client, server)
        both = [asyncio.ensure_future(way) for way in ways]
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in both:
                way.cancel()
            await asyncio.gather(*both, return_exceptions=True)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        generation = self.generation
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                if generation != self.generation:
                    continue
                writer.write(data)
                await writer.drain()


class _Tapped:
    """One connection whose messages are read. Only the first, which has no type, is passed on unseen."""

    def __init__(
        self,
        trap: Trap,
        client: asyncio.StreamReader,
        to_client: asyncio.StreamWriter,
        server: asyncio.StreamReader,
        to_server: asyncio.StreamWriter,
    ) -> None:
        self._trap = trap
        self._client, self._to_client = client, to_client
        self._server, self._to_server = server, to_server
        self._said = not trap.after
        self._armed = False

    def ways(self) -> list[Coroutine[Any, Any, None]]:
        return [self._forth(), self._back()]

    async def _forth(self) -> None:
        """Pass the client's messages on; return where the trap cuts before one."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            size = await self._client.readexactly(4)
            self._to_server.write(size + await self._client.readexactly(int.from_bytes(size) - 4))
            while True:
                head, body = await _message(self._client)
                if self._springs_at(body):
                    if self._trap.half == "unsent":
                        self._trap.sprung.set()
                        return await self._let_go()
                    self._armed = True
                self._said = self._said or self._trap.after in body
                self._to_server.write(head + body)
                await self._to_server.drain()

    async def _let_go(self) -> None:
        """Return, and the connection is cut; or never, and it is not."""
        if self._trap.hold:
            await asyncio.Event().wait()

    def _springs_at(self, body: bytes) -> bool:
        return self._said and not self._armed and not self._trap.sprung.is_set() and self._trap.words in body

    async def _back(self) -> None:
        """Pass the server's messages on; return where the trap swallows an answer."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head, body = await _message(self._server)
                if not self._armed:
                    self._to_client.write(head + body)
                    await self._to_client.drain()
                elif head[:1] == READY:
                    self._trap.sprung.set()
                    return await self._let_go()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head, await reader.readexactly(int.from_bytes(head[1:]) - 4)
