"""How operations reach a server, in either mode, and nothing about queues.

A wire runs a script, or a plain command, and returns the answer. This is the only place where the adapter waits for
Redis: the blocking wires block and never suspend, the async ones await. A script is called by its SHA; a server that
does not know it, because it is new or its cache was flushed, gets the source with the same call, once.
"""

from __future__ import annotations

import asyncio
import functools
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, Protocol

from redis.exceptions import NoScriptError

from pgjq.deadline import call_in_time, wait_in_time
from pgjq.errors import StorageError
from pgjq.storage.redis.error_translation import translated

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.storage.redis.scripts import Script

Word = bytes | str | int
OLDEST: Final = (6, 2)
THREADS: Final = 32


class Transport(Protocol):
    """How the operations of one mode reach the server."""

    async def execute(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        """Run a script and return its answer."""
        ...

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its answer."""
        ...

    async def close(self) -> None:
        """Close this mode's connections."""
        ...


def packed(words: Sequence[Word]) -> bytes:
    """Write a command as the server reads it."""
    return b"*%d\r\n%b" % (len(words), _written(words))


def _written(words: Sequence[Word]) -> bytes:
    parts: list[bytes] = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


@functools.lru_cache(4096)
def _opening(script: Script, keys: tuple[Word, ...]) -> bytes:
    """Write what a call of a script begins with, which is the most of it and the same for all calls on a queue."""
    return _written(("EVALSHA", script.sha, len(keys), *keys))


class Gate:
    """Knows whether the storage is open, and whether the server is one that we can work with."""

    def __init__(self) -> None:
        self.closed = False
        self._checked = False

    def enter(self) -> bool:
        """Refuse when closed; say whether the server has been looked at."""
        if self.closed:
            message = "this storage has been closed"
            raise StorageError(message)
        return self._checked

    def check(self, version: str) -> None:
        """Look at the server's version."""
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise StorageError(f"this Redis has version {version}; pgjq needs 6.2 or newer, or Valkey")
        self._checked = True


class Scripted:
    """What all wires share: how a script is called."""

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its answer."""
        raise NotImplementedError

    async def execute(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        """Run a script and return its answer."""
        try:
            return await self._evalsha(script, keys, args)
        except StorageError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.command("EVAL", script.source, len(keys), *keys, *args)

    async def _evalsha(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)


class Packed(Scripted):
    """A wire of our own, which sends bytes as they are."""

    async def send(self, command: bytes) -> Any:
        """Send a command and return its answer."""
        raise NotImplementedError

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its answer."""
        return await self.send(packed(words))

    async def _evalsha(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        count = 3 + len(keys) + len(args)
        return await self.send(b"*%d\r\n%b%b" % (count, _opening(script, keys), _written(args)))


class ClientTransport(Scripted):
    """Somebody's client, which blocks; its connections are not ours to close."""

    def __init__(self, gate: Gate, client: Any) -> None:
        self.gate = gate
        self._client = client

    async def command(self, *words: Word) -> Any:
        """Run a command; with a deadline the client blocks a thread of its own."""
        with translated():
            return call_in_time(lambda: self.call(*words))

    def call(self, *words: Word) -> Any:
        """Run a command, plainly."""
        checked = self.gate.enter()
        with translated():
            if not checked:
                self._check()
            return self._client.execute_command(*words)

    def _check(self) -> None:
        said = self._client.info("server")
        # A cluster answers for each of its servers.
        self.gate.check(str(said.get("redis_version") or next(iter(said.values()))["redis_version"]))

    async def close(self) -> None:
        """Close nothing."""


class ThreadedTransport(Scripted):
    """Somebody's client, for event loops: each call is made on a thread.

    The threads are not those of the event loop, whose end would wait for a call that was given up. A forked child
    begins with none.
    """

    def __init__(self, wire: ClientTransport) -> None:
        self._wire = wire
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(THREADS, "pgjq redis")

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        self._wire.gate.enter()
        if self._process != os.getpid():
            self._begin()
        with translated():
            return await wait_in_time(
                asyncio.get_running_loop().run_in_executor(self._threads, self._wire.call, *words)
            )

    async def close(self) -> None:
        """Close nothing."""

    def end_threads(self) -> None:
        """End the threads, each after the call that it is in."""
        self._threads.shutdown(wait=False)
