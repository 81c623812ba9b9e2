"""Connections to Redis in either colour, and nothing about queues.

A wire runs a script, or a plain command, and returns the answer. This is the only place where the adapter waits for
Redis: the blocking wire blocks and never suspends, the async one awaits. A script is called by its SHA; a server that
does not know it, because it is new or its cache was flushed, gets the source with the same call, once.

Nothing is sent twice: whether a command whose answer was lost was done is the caller's question. A connection that died
while it was idle is replaced before it is used (redis-py looks for that), so a restart of the server is noticed by
those alone whose call was under way.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError
from redis.retry import Retry

from pgjq.errors import StorageError, StorageUnavailableError, ValidationError
from pgjq.storage.redis.failures import has_moved, translated
from pgjq.storage.redis.listen import Listener

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pgjq.storage.redis.scripts import Script

Word = bytes | str | int
CONNECTIONS: Final = 32
OLDEST: Final = (6, 2)
# What a URL may say otherwise. A peer that is gone is noticed by the call that it does not answer.
USUAL: Final[dict[str, Any]] = {
    "max_connections": CONNECTIONS,
    "timeout": 30.0,
    "socket_timeout": 15.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "client_name": "pgjq",
}


class Wire(Protocol):
    """How the operations of one colour reach the server."""

    async def execute(self, script: Script, keys: Sequence[Word], args: Sequence[Word]) -> Any:
        """Run a script and return its answer."""
        ...

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its answer."""
        ...

    async def close(self) -> None:
        """Close this colour's connections."""
        ...


class Address:
    """Where the server is, and how clients for it are made."""

    def __init__(self, url: str) -> None:
        self._url = url
        try:
            cast(
                "Any", self.blocking()
            ).connection_pool.make_connection()  # It does not connect, but knows its options.
        except (ValueError, TypeError) as error:
            raise ValidationError(f"this is not a URL of Redis: {error}") from error

    def blocking(self) -> redis.Redis:
        """Make a client for threads."""
        blocking: Any = redis.BlockingConnectionPool
        return redis.Redis(connection_pool=blocking.from_url(self._url, retry=Retry(NoBackoff(), 0), **_usual()))

    def awaiting(self) -> tuple[redis.asyncio.Redis, float | None]:
        """Make a client for the running event loop; return it and how long to wait for an answer.

        We wait by ourselves: redis-py's own way, on Python 3.11, makes a task of each command that is sent, and forgets
        to be cancelled when that has just ended.
        """
        blocking: Any = redis.asyncio.BlockingConnectionPool
        pool = blocking.from_url(self._url, retry=AsyncRetry(NoBackoff(), 0), **_usual())
        patience = pool.connection_kwargs.pop("socket_timeout", None)
        pool.connection_kwargs["socket_timeout"] = None
        return redis.asyncio.Redis(connection_pool=pool), patience


def _usual() -> dict[str, Any]:
    """Our settings; the second version of the protocol is what every server speaks."""
    return {**USUAL, "protocol": 2, "decode_responses": False}


class Connections(Protocol):
    """A server's connections in both colours, and for listening."""

    @property
    def closed(self) -> bool:
        """Whether they have been closed."""
        ...

    @property
    def blocking(self) -> Wire:
        """The blocking colour's."""
        ...

    @property
    def awaiting(self) -> Wire:
        """The async colour's."""
        ...

    @property
    def unseen(self) -> str:
        """What is "1" where scripts cannot see who listens, and publish anyway."""
        ...

    def reserved(self) -> Wire:
        """Make a blocking wire that nobody else uses."""
        ...

    def listener(self, channel: str, *, stays: bool) -> Listener:
        """Make the listener of a channel."""
        ...

    def close(self) -> None:
        """Close what is ours, from any thread."""
        ...


class Gate:
    """Knows whether the storage is open, and whether the server is one that we can work with."""

    def __init__(self) -> None:
        self.closed = False
        self.checked = False

    def enter(self) -> bool:
        """Refuse when closed; say whether the server has been looked at."""
        if self.closed:
            message = "this storage has been closed"
            raise StorageError(message)
        return self.checked

    def check(self, info: Any) -> None:
        """Look at what the server says of itself."""
        said = info if "redis_version" in info else next(iter(info.values()))  # A cluster answers for each node.
        version = str(said["redis_version"])
        if tuple(int(part) for part in version.split(".")[:2]) < OLDEST:
            message = f"this Redis has version {version}; pgjq needs 6.2 or newer, or Valkey"
            raise StorageError(message)
        self.checked = True


class _Scripted:
    """What both colours share: how a script is called."""

    async def command(self, *words: Word) -> Any:
        """Run a plain command and return its answer."""
        raise NotImplementedError

    async def execute(self, script: Script, keys: Sequence[Word], args: Sequence[Word]) -> Any:
        """Run a script and return its answer."""
        try:
            return await self.command("EVALSHA", script.sha, len(keys), *keys, *args)
        except StorageError as error:
            if not isinstance(error.__cause__, NoScriptError):
                raise
        return await self.command("EVAL", script.source, len(keys), *keys, *args)


class BlockingWire(_Scripted):
    """A client for threads."""

    def __init__(self, gate: Gate, client: Any, *, ours: bool = True) -> None:
        self._gate = gate
        self._client = client
        self._ours = ours

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        return self.call(*words)

    def call(self, *words: Word) -> Any:
        """Run a command, plainly."""
        if not self._gate.enter():
            self._gate.check(self._call("INFO", "server"))
        return self._call(*words)

    def _call(self, *words: Word) -> Any:
        try:
            with translated():
                return self._client.execute_command(*words)
        except StorageUnavailableError as error:
            if has_moved(error.__cause__):
                self.close_now()
            raise

    async def close(self) -> None:
        """Close the connections, if they are ours."""
        self.close_now()

    def close_now(self) -> None:
        """Close, plainly; a call that is under way keeps its connection until it ends."""
        if self._ours:
            self._client.connection_pool.disconnect(inuse_connections=False)


class AsyncWire(_Scripted):
    """Clients for event loops, one for each."""

    def __init__(self, gate: Gate, address: Address) -> None:
        self._gate = gate
        self._address = address
        self._lock = threading.Lock()
        self._by_loop: dict[asyncio.AbstractEventLoop, tuple[Any, float | None]] = {}

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        if not self._gate.enter():
            self._gate.check(await self._call("INFO", "server"))
        return await self._call(*words)

    async def _call(self, *words: Word) -> Any:
        client, patience = self._client()
        try:
            with translated():
                async with asyncio.timeout(patience):
                    return await client.execute_command(*words)
        except StorageUnavailableError as error:
            if has_moved(error.__cause__):
                await client.connection_pool.disconnect(inuse_connections=False)
            raise

    def _client(self) -> tuple[Any, float | None]:
        loop = asyncio.get_running_loop()
        client = self._by_loop.get(loop)
        if client is None:
            with self._lock:
                self._by_loop = {known: c for known, c in self._by_loop.items() if not known.is_closed()}
                client = self._by_loop[loop] = self._address.awaiting()
        return client

    async def close(self) -> None:
        """Close this loop's connections."""
        with self._lock:
            found = self._by_loop.pop(asyncio.get_running_loop(), None)
        if found is not None:
            await found[0].connection_pool.disconnect()

    def close_soon(self) -> None:
        """Have every loop that is still running close its own connections."""
        with self._lock:
            clients, self._by_loop = self._by_loop, {}
        for loop, (client, _) in clients.items():
            if not loop.is_closed():
                loop.call_soon_threadsafe(lambda c=client, on=loop: on.create_task(c.connection_pool.disconnect()))


class ThreadedWire(_Scripted):
    """Somebody's client, which blocks, for event loops: each call is made on a thread."""

    def __init__(self, wire: BlockingWire) -> None:
        self._wire = wire

    async def command(self, *words: Word) -> Any:
        """Run a command."""
        return await asyncio.to_thread(self._wire.call, *words)

    async def close(self) -> None:
        """Close nothing: the client is somebody's."""


class OwnConnections:
    """Connections that we make, and close."""

    unseen = ""

    def __init__(self, url: str) -> None:
        self._gate = Gate()
        self._address = Address(url)
        self._client = self._address.blocking()
        self.blocking = BlockingWire(self._gate, self._client)
        self.awaiting = AsyncWire(self._gate, self._address)

    @property
    def closed(self) -> bool:
        """Whether the storage has been closed."""
        return self._gate.closed

    def reserved(self) -> Wire:
        """Make a wire with a pool of its own."""
        return BlockingWire(self._gate, self._address.blocking())

    def listener(self, channel: str, *, stays: bool) -> Listener:
        """Make the listener of a channel."""
        return Listener(self._client, channel, stays=stays)

    def close(self) -> None:
        """Close everything."""
        self._gate.closed = True
        self.blocking.close_now()
        self.awaiting.close_soon()


class GivenConnections:
    """Somebody's client, whose connections are not ours to close."""

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "pubsub") or inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
            raise ValidationError("client must be a redis.Redis or its like, of the blocking kind, also for async code")
        if client.get_encoder().decode_responses:
            raise ValidationError("client must not decode responses: payloads are bytes (decode_responses=False)")
        self._gate = Gate()
        self._client = client
        # In a cluster the server that runs a script does not know who listens at another one.
        self.unseen = "1" if hasattr(client, "nodes_manager") else ""
        self.blocking = BlockingWire(self._gate, client, ours=False)
        self.awaiting = ThreadedWire(self.blocking)

    @property
    def closed(self) -> bool:
        """Whether the storage has been closed."""
        return self._gate.closed

    def reserved(self) -> Wire:
        """Use the client: it makes connections as they are needed."""
        return self.blocking

    def listener(self, channel: str, *, stays: bool) -> Listener:
        """Make the listener of a channel."""
        return Listener(self._client, channel, stays=stays)

    def close(self) -> None:
        """Use the client no more."""
        self._gate.closed = True
