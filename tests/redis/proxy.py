"""A relay to Redis that a test can break: it loses a command or its answer, once."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import hiredis

from tests.worker.proxy import Proxy, Trap

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from tests.threaded_server import Streams


class RedisProxy(Proxy):
    """A relay to the server of a URL; `url` leads through it. A command with the trap's words springs the trap."""

    def __init__(self, upstream: str, trap: Trap | None = None) -> None:
        server = urlsplit(upstream)
        super().__init__(f"host={server.hostname} port={server.port}", trap)
        self.url = f"redis://127.0.0.1:{self.port}"

    def tapped(self, trap: Trap, client: Streams, server: Streams) -> list[Coroutine[Any, Any, None]]:
        return _Tapped(trap, client, server).ways()


class _Tapped:
    """One connection whose commands are read. Answers come in the order of the commands."""

    def __init__(self, trap: Trap, client: Streams, server: Streams) -> None:
        self._trap = trap
        self._client, self._server = client, server
        self._commands = hiredis.Reader()  # A command is written as an answer with many parts is.
        self._answers = hiredis.Reader()
        self._asked = self._result_from = 0
        self._armed: int | None = None

    def ways(self) -> list[Coroutine[Any, Any, None]]:
        return [self._forth(), self._back()]

    def _sent(self, data: bytes) -> None:
        self._commands.feed(data)
        while (words := self._commands.gets()) is not False:
            self._asked += 1
            if self._armed is None and not self._trap.sprung.is_set() and self._trap.words in words:
                self._armed = self._asked

    def _answered(self, data: bytes) -> None:
        self._answers.feed(data)
        while self._answers.gets() is not False:
            self._result_from += 1

    async def _let_go(self) -> None:
        """Return, and the connection is cut; or never, and it is not."""
        if self._trap.hold:
            await asyncio.Event().wait()

    async def _forth(self) -> None:
        """Pass commands on; return where the trap cuts before one."""
        with contextlib.suppress(OSError):
            while data := await self._client[0].read(65536):
                self._sent(data)
                if self._armed is not None and self._trap.half == "unsent":
                    self._trap.sprung.set()
                    return
                self._server[1].write(data)
                await self._server[1].drain()

    async def _back(self) -> None:
        """Pass answers on; return where the trap swallows one, and with it those that were still to come."""
        with contextlib.suppress(OSError):
            while data := await self._server[0].read(65536):
                self._answered(data)
                if self._armed is None:
                    self._client[1].write(data)
                    await self._client[1].drain()
                elif self._result_from >= self._armed:
                    if self._trap.half == "torn":
                        self._client[1].write(data[: len(data) // 2])
                    self._trap.sprung.set()
                    await self._let_go()
                    return
