"""A pooler as people put before PostgreSQL: each transaction goes to whatever session of the server is free.

It speaks as much of the protocol as psycopg needs: it greets with a process number of its own, and takes the next
session for every message after the server was ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from tests.threaded_server import ThreadedServer

if TYPE_CHECKING:
    from tests.threaded_server import Streams

READY = b"Z"
KEY = b"K"
MADE_UP = (1).to_bytes(4)


class Pooler(ThreadedServer):
    """A pool of `size` sessions behind a port of its own, used in turn; `conninfo` leads through it."""

    def __init__(self, upstream: str, size: int = 2) -> None:
        self._size = size
        self._sessions: asyncio.Queue[Streams] = asyncio.Queue()
        self._greeting = b""
        super().__init__(upstream)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            size = await reader.readexactly(4)
            startup = size + await reader.readexactly(int.from_bytes(size) - 4)
            while self._size > 0:
                self._size -= 1
                await self._open(startup)
            writer.write(self._greeting)
            await self._relay(reader, writer)

    async def _open(self, startup: bytes) -> None:
        """Start a session of the server with the words of the first client, and keep its greeting for all."""
        session = await self._open_upstream()
        self._writers.add(session[1])
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


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readexactly(5)
    return head, await reader.readexactly(int.from_bytes(head[1:]) - 4)
