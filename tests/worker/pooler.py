"""A pooler as people put before PostgreSQL: each transaction goes to whatever session of the server is free.

It speaks as much of the protocol as psycopg needs: it greets with a process number of its own, and takes the next
session for every message after the server was ready.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Coroutine

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
READY = b"Z"
KEY = b"K"
MADE_UP = (1).to_bytes(4)


class Pooler:
    """A pool of `size` sessions behind a port of its own, used in turn; `conninfo` leads through it."""

    def __init__(self, upstream: str, size: int = 2) -> None:
        self._upstream = conninfo_to_dict(upstream)
        self._size = size
        self._sessions: asyncio.Queue[Streams] = asyncio.Queue()
        self._greeting = b""
        self._closing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        port = self._server.sockets[0].getsockname()[1]
        self.conninfo = make_conninfo(upstream, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _close(self) -> None:
        self._closing = True
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            await _end(writer)
        while not self._sessions.empty():
            await _end((await self._sessions.get())[1])

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._closing:
            writer.transport.abort()
            return
        self._writers.add(writer)  # Here, because a task that is cancelled at once never begins.
        task = self._loop.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            size = await reader.readexactly(4)
            startup = size + await reader.readexactly(int.from_bytes(size) - 4)
            while self._size > 0:
                self._size -= 1
                await self._open(startup)
            writer.write(self._greeting)
            await self._relay(reader, writer)
        self._writers.discard(writer)
        await _end(writer)

    async def _open(self, startup: bytes) -> None:
        """Start a session of the server with the words of the first client, and keep its greeting for all."""
        host, port = str(self._upstream["host"]), self._upstream.get("port") or "5432"
        connect = asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}") if host.startswith("/") else None
        session = await (connect or asyncio.open_connection(host, int(port)))
        session[1].write(startup)
        greeting = b""
        while True:
            head, body = await _message(session[0])
            greeting += head + (MADE_UP + body[4:] if head[:1] == KEY else body)
            if head[:1] == READY:
                break
        self._greeting = greeting
        await self._sessions.put(session)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            head, body = await _message(reader)
            if head[:1] == b"X":
                return
            session = await self._sessions.get()
            try:
                await self._converse(session, head + body, reader, writer)
            finally:
                await self._sessions.put(session)

    async def _converse(
        self, session: Streams, first: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Pass one transaction to and fro: a simple query, or messages up to Sync, then answers up to an idle Ready."""
        session[1].write(first)
        kind = first[:1]
        while True:
            while kind not in b"QS":
                head, body = await _message(reader)
                session[1].write(head + body)
                kind = head[:1]
            while True:
                head, body = await _message(session[0])
                writer.write(head + body)
                if head[:1] == READY:
                    break
            if body == b"I":
                return
            head, body = await _message(reader)
            session[1].write(head + body)
            kind = head[:1]


async def _end(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head, await reader.readexactly(int.from_bytes(head[1:]) - 4)
