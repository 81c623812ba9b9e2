"""Transports: how the operations of a mode reach a server. They know nothing of queues.

A transport runs a script, or a plain command, and returns the reply. Only here does the adapter wait for Redis: the
sync transports block and never suspend, the async ones await. A script is called by its SHA; a server that does not
know it, because it is new or its cache was flushed, gets the same call once more with the source.
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
        """Run a script and return its reply."""
        ...

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its reply."""
        ...

    async def close(self) -> None:
        """Close this mode's connections."""
        ...


def packed(words: Sequence[Word]) -> bytes:
    """Write a command in the server's protocol."""
    return b"*%d\r\n%b" % (len(words), _written(words))


def _written(words: Sequence[Word]) -> bytes:
    parts: list[bytes] = []
    for word in words:
        data = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%b\r\n" % (len(data), data))
    return b"".join(parts)


@functools.lru_cache(4096)
def _opening(script: Script, keys: tuple[Word, ...]) -> bytes:
    """Write the beginning of a script call: most of it, and the same for all calls on a queue."""
    return _written(("EVALSHA", script.sha, len(keys), *keys))


class Gate:
    """Checks that the storage is open, and that the server's version is supported."""

    def __init__(self) -> None:
        self.closed = False
        self._checked = False

    def enter(self) -> bool:
        """Raise StorageError if closed; return whether the server's version was checked."""
        if self.closed:
            message = "this storage has been closed"
            raise StorageError(message)
        return self._checked

    def check(self, version: str) -> None:
        """Raise StorageError if the server's version is too old."""
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise StorageError(f"this Redis has version {version}; pgjq needs 6.2 or newer, or Valkey")
        self._checked = True


class Scripted:
    """Base of all transports: calls a script by its SHA, else by its source."""

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its reply."""
        raise NotImplementedError

    async def execute(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        """Run a script and return its reply."""
        try:
            return await self._evalsha(script, keys, args)
        except StorageError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.command("EVAL", script.source, len(keys), *keys, *args)

    async def _evalsha(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)


class Packed(Scripted):
    """Base of the transports that write the protocol themselves."""

    async def send(self, command: bytes) -> Any:
        """Send a command and return its reply."""
        raise NotImplementedError

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its reply."""
        return await self.send(packed(words))

    async def _evalsha(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        count = 3 + len(keys) + len(args)
        return await self.send(b"*%d\r\n%b%b" % (count, _opening(script, keys), _written(args)))


class ClientTransport(Scripted):
    """The caller's blocking client, whose connections the storage never closes."""

    def __init__(self, gate: Gate, client: Any) -> None:
        self.gate = gate
        self._client = client

    async def command(self, *words: Word) -> Any:
        """Run a command; with a deadline the client runs on another thread."""
        with translated():
            return call_in_time(lambda: self.call(*words))

    def call(self, *words: Word) -> Any:
        """Run a command, without a deadline and without a coroutine."""
        checked = self.gate.enter()
        with translated():
            if not checked:
                self._check()
            return self._client.execute_command(*words)

    def _check(self) -> None:
        info = self._client.info("server")
        # A cluster replies with the information of each of its servers.
        self.gate.check(str(info.get("redis_version") or next(iter(info.values()))["redis_version"]))

    async def close(self) -> None:
        """Close nothing."""


class ThreadedTransport(Scripted):
    """The caller's blocking client, for event loops: each call runs on a thread.

    The threads are not those of the event loop, because closing the loop would wait for an abandoned call. A forked
    child starts with none.
    """

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self._begin()

    def _begin(self) -> None:
        self._process = os.getpid()
        self._threads = ThreadPoolExecutor(THREADS, "pgjq redis")

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        self._transport.gate.enter()
        if self._process != os.getpid():
            self._begin()
        with translated():
            return await wait_in_time(
                asyncio.get_running_loop().run_in_executor(self._threads, self._transport.call, *words)
            )

    async def close(self) -> None:
        """Close nothing."""

    def end_threads(self) -> None:
        """End the threads, each after its current call."""
        self._threads.shutdown(wait=False)
