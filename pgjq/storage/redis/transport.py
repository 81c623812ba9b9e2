"""Transports: how the operations of a mode reach a server. They know nothing of queues.

A transport runs a script, or a plain command, and returns the reply: over connections of the storage's own (`pool.py`)
or by a client of the caller's (`caller_client.py`). The sync transports block and never suspend, the async ones await.
A script is called by its SHA; a server that does not know it, because it is new or its cache was flushed, gets the same
call once more with the source.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from redis.exceptions import NoScriptError

from pgjq.errors import StorageError, storage_closed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.storage.redis.resp import Word
    from pgjq.storage.redis.scripts import Script

OLDEST: Final = (6, 2)


class Transport:
    """How the operations of one mode reach the server; a subclass says how a command does."""

    async def execute(self, script: Script, keys: tuple[Word, ...], args: Sequence[Word]) -> Any:
        """Run a script and return its reply."""
        try:
            return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)
        except StorageError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.command("EVAL", script.source, len(keys), *keys, *args)

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its reply."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close this mode's connections."""
        raise NotImplementedError


class Gate:
    """Checks that the storage is open, and that the server's version is supported."""

    def __init__(self) -> None:
        self.closed = False
        self._checked = False

    def enter(self) -> bool:
        """Raise StorageError if closed; return whether the server's version was checked."""
        if self.closed:
            raise storage_closed()
        return self._checked

    def check(self, version: str) -> None:
        """Raise StorageError if the server's version is too old."""
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            raise StorageError(f"this Redis has version {version}; pgjq needs 6.2 or newer, or Valkey")
        self._checked = True
