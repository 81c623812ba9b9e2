"""An asyncio server on a port of 127.0.0.1, in a thread of its own, for tests that put something before PostgreSQL.

`close` returns when every connection has been closed and every task has ended. A connection that was accepted but has
not reached the protocol yet is waited for as well: an event loop that is closed too early leaves its socket open.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any, Self

from psycopg.conninfo import conninfo_to_dict, make_conninfo

if TYPE_CHECKING:
    from collections.abc import Coroutine

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class ThreadedServer:
    """Accepts connections and runs `serve` for each; `conninfo` is the upstream's, with this server's address."""

    def __init__(self, upstream: str) -> None:
        self._upstream = conninfo_to_dict(upstream)
        self._closing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._accept, "127.0.0.1", 0))
        self.port: int = self._server.sockets[0].getsockname()[1]
        self.conninfo = make_conninfo(
            upstream, host="127.0.0.1", port=self.port, sslmode="disable", gssencmode="disable"
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client; its connection is closed afterwards."""
        raise NotImplementedError

    def accepts(self) -> bool:
        """Tell whether new connections are served; the others are closed at once."""
        return not self._closing

    def close(self) -> None:
        """Close every connection, then the server."""
        self._call(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def _open_upstream(self) -> Streams:
        host, port = str(self._upstream["host"]), self._upstream.get("port") or "5432"
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, int(port))

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self.accepts():
            writer.transport.abort()
            return
        self._writers.add(writer)  # Here, because a task that is cancelled at once never begins.
        task = self._loop.create_task(self._served(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _served(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self.serve(reader, writer)
        finally:
            self._discard(writer)

    def _discard(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        writer.transport.abort()

    def _abort(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    async def _close(self) -> None:
        self._closing = True
        self._abort()
        # Stop accepting before closing: asyncio loses the socket of a connection whose server was closed meanwhile.
        for listener in self._server.sockets:
            self._loop.remove_reader(listener)
        # asyncio's own tasks are waited for and not cancelled: each has a socket that it has accepted.
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(others)
        self._server.close()
