"""One proxy for each process, so that a fault can hit the connections of one process or of all.

Beside what `Proxy` can do, this one tears messages in two, delays them, and can be pointed at another server.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict

from tests.redis.proxy import RedisProxy
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Generator

    from tests.worker.proxy import Trap


class FaultyProxy(Proxy):
    """A relay to the server of a connection string; each fault is a context manager that ends with the block."""

    def __init__(self, upstream: str) -> None:
        self._delay = 0.0
        self._tearing = False
        super().__init__(upstream)

    def redirect(self, upstream: str) -> None:
        """Send new connections to another server; those that are open stay where they are."""
        self._upstream = conninfo_to_dict(upstream)

    @contextlib.contextmanager
    def refusing(self) -> Generator[None]:
        """Cut every connection, and refuse new ones."""
        self.refuse()
        yield
        self.restore()

    @contextlib.contextmanager
    def silent(self) -> Generator[None]:
        """Keep connections open, and pass nothing on."""
        self.silence()
        yield
        self.restore()

    @contextlib.contextmanager
    def slow(self, seconds: float) -> Generator[None]:
        """Delay every message."""
        self._delay = seconds
        yield
        self._delay = 0.0

    @contextlib.contextmanager
    def tearing(self) -> Generator[None]:
        """Pass on the first half of the next message of each connection, and cut the connection there."""
        self._tearing = True
        yield
        self._tearing = False

    @contextlib.contextmanager
    def trapped(self, trap: Trap) -> Generator[None]:
        """Have new connections read by a trap; connections are cut before, so that there are new ones, and after."""
        self.trap = trap
        self.cut()
        yield
        self.trap = None
        self.cut()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        generation = self.generation
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                await self._flowing.wait()
                if generation != self.generation:
                    continue
                if self._delay:
                    await asyncio.sleep(self._delay)
                if self._tearing and len(data) > 1:
                    writer.write(data[: len(data) // 2])
                    await writer.drain()
                    return
                writer.write(data)
                await writer.drain()


class FaultyRedisProxy(FaultyProxy):
    """The same before Redis: a trap reads its commands."""

    tapped = RedisProxy.tapped
