"""A network that a test can break: a relay between workers and the server, on a port of its own.

It passes on, cuts what is open, refuses what is new, or goes silent, as a dead router does. With a `Trap` it reads the
messages of PostgreSQL's protocol on their way, and cuts the connection at one of them, once.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

Half = Literal["unsent", "unanswered"]
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
READY = b"Z"


@dataclass
class Trap:
    """Cut at the first statement with `words` in it, of a connection that said `after` before; then never again.

    `unsent`: the statement never reaches the server. `unanswered`: the server has done it, and its answer is lost.
    """

    words: bytes
    half: Half
    after: bytes = b""
    sprung: threading.Event = field(default_factory=threading.Event)


class Proxy:
    """A relay to the server of a connection string, in a thread; `conninfo` leads through it."""

    def __init__(self, upstream: str, trap: Trap | None = None) -> None:
        self._trap = trap
        self._upstream = conninfo_to_dict(upstream)
        self._refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        self.conninfo = make_conninfo(upstream, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")

    def refuse(self) -> None:
        """Cut every connection, and every new one at once."""
        self._run(self._refuse)

    def silence(self) -> None:
        """Pass nothing on, and say nothing about it."""
        self._run(self._flowing.clear)

    def cut(self) -> None:
        """Cut every connection; new ones are welcome."""
        self._run(self._abort)

    def restore(self) -> None:
        """Be a good network again; what was open in the silence goes on where it was."""
        self._run(self._restore)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _refuse(self) -> None:
        self._refusing = True
        self._abort()

    def _restore(self) -> None:
        self._refusing = False
        self._flowing.set()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def _close(self) -> None:
        self._refusing = True
        self._server.close()
        self._abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _run(self, change: Callable[[], None]) -> None:
        async def run() -> None:
            change()

        self._call(run())

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing:
            writer.transport.abort()
            return
        self._writers.add(writer)  # Here, because a task that is cancelled at once never begins.
        task = self._loop.create_task(self._relay(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: Streams | None = None
        try:
            server = await self._connect()
            self._writers.add(server[1])
            if self._trap is None:
                ways = [self._pump(reader, server[1]), self._pump(server[0], writer)]
            else:
                ways = _Tapped(self._trap, reader, writer, *server).ways()
            both = [asyncio.ensure_future(way) for way in ways]
            try:
                await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in both:
                    way.cancel()
                await asyncio.gather(*both, return_exceptions=True)
        except OSError:
            pass
        finally:
            for end in (writer, *(server or ())[1:]):
                self._writers.discard(end)
                end.transport.abort()

    async def _connect(self) -> Streams:
        host, port = str(self._upstream["host"]), self._upstream.get("port") or "5432"
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
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
                        return
                    self._armed = True
                self._said = self._said or self._trap.after in body
                self._to_server.write(head + body)
                await self._to_server.drain()

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
                    return


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head, await reader.readexactly(int.from_bytes(head[1:]) - 4)
