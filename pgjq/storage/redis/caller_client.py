"""Transports over a client of the caller's own, whose connections the storage never closes.

The client blocks for as long as its own timeouts allow. A caller with a deadline (`pgjq.deadline`) does not wait for
it: the call runs on a thread, which is left behind at the deadline and ends when the client returns. It is a daemon
thread, so the process does not wait for it at its exit either.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from pgjq.deadline import call_in_time, start_call, wait_in_time
from pgjq.storage.per_loop import PerLoop
from pgjq.storage.redis.error_translation import translated
from pgjq.storage.redis.transport import Gate, Transport

if TYPE_CHECKING:
    from pgjq.storage.redis.resp import Word

THREADS: Final = 32


class ClientTransport(Transport):
    """The client, for callers that block."""

    def __init__(self, gate: Gate, client: Any) -> None:
        self._gate = gate
        self._client = client

    async def command(self, *words: Word) -> Any:
        """Run a command; with a deadline the client runs on another thread."""
        with translated():
            return call_in_time(lambda: self.call(*words))

    def call(self, *words: Word) -> Any:
        """Run a command, without a deadline and without a coroutine."""
        checked = self._gate.enter()
        with translated():
            if not checked:
                self._check()
            return self._client.execute_command(*words)

    def _check(self) -> None:
        info = self._client.info("server")
        # A cluster replies with the information of each of its servers.
        self._gate.check(str(info.get("redis_version") or next(iter(info.values()))["redis_version"]))

    async def close(self) -> None:
        """Close nothing."""


class ThreadedTransport(Transport):
    """The client, for event loops: each call runs on a thread of its own."""

    def __init__(self, transport: ClientTransport) -> None:
        self._transport = transport
        self._room = PerLoop(lambda: asyncio.Semaphore(THREADS))

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        with translated():
            return await wait_in_time(self._call(words))

    async def _call(self, words: tuple[Word, ...]) -> Any:
        async with self._room.get():
            return await asyncio.wrap_future(start_call(lambda: self._transport.call(*words)))

    async def close(self) -> None:
        """Close nothing."""
