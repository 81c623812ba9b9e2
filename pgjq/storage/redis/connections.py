"""The connections of a storage: its own, which it closes, or those of the caller's client."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol

from pgjq.errors import ValidationError
from pgjq.storage.redis.address import Address
from pgjq.storage.redis.async_listener import AsyncListener
from pgjq.storage.redis.caller_client import ClientTransport, ThreadedTransport
from pgjq.storage.redis.listener import AwaitedListener, ThreadListener
from pgjq.storage.redis.pool import AsyncPool, SyncPool
from pgjq.storage.redis.transport import Gate

if TYPE_CHECKING:
    from pgjq.blocking import Mode
    from pgjq.storage.redis.listener import Listener
    from pgjq.storage.redis.subscribers import Subjects
    from pgjq.storage.redis.transport import Transport


class Connections(Protocol):
    """The connections to a server, for both modes and for listening."""

    @property
    def closed(self) -> bool:
        """Whether they have been closed."""
        ...

    @property
    def sync_transport(self) -> Transport:
        """Transport of the sync mode."""
        ...

    @property
    def async_transport(self) -> Transport:
        """Transport of the async mode."""
        ...

    @property
    def publish_uncounted(self) -> str:
        """Script argument: "1" to publish events without counting subscribers, else ""."""
        ...

    def dedicated(self) -> Transport:
        """Make a blocking transport for one thread."""
        ...

    def listener(self, mode: Mode, channel: str, subjects: Subjects, *, stays: bool) -> Listener:
        """Make the listener of a channel."""
        ...

    def close(self) -> None:
        """Close the storage's own connections, from any thread."""
        ...


class OwnConnections:
    """Connections that the storage opens and closes."""

    publish_uncounted = ""

    def __init__(self, url: str) -> None:
        self._gate = Gate()
        self._address = Address(url)
        self.sync_transport = SyncPool(self._gate, self._address)
        self.async_transport = AsyncPool(self._gate, self._address)

    @property
    def closed(self) -> bool:
        """Whether the storage has been closed."""
        return self._gate.closed

    def dedicated(self) -> Transport:
        """Make a separate pool."""
        return SyncPool(self._gate, self._address)

    def listener(self, mode: Mode, channel: str, subjects: Subjects, *, stays: bool) -> Listener:
        """Make the listener of a channel."""
        if mode == "async":
            return AsyncListener(self._address, channel, subjects, stays=stays, on_silence=self._drop)
        return ThreadListener(self._address.client(), channel, subjects, stays=stays, on_silence=self._drop)

    def _drop(self) -> None:
        """Stop using the present connections, because one was silent. Callable from any thread."""
        self.sync_transport.close_now()
        self.async_transport.drop()

    def close(self) -> None:
        """Close everything."""
        self._gate.closed = True
        self.sync_transport.close_now()
        self.async_transport.close_soon()


class GivenConnections:
    """The connections of the caller's client, which the storage never closes."""

    def __init__(self, client: Any) -> None:
        if not hasattr(client, "pubsub") or inspect.iscoroutinefunction(getattr(client, "execute_command", None)):
            raise ValidationError("client must be a blocking client such as redis.Redis, also for async code")
        if client.get_encoder().decode_responses:
            raise ValidationError("client must not decode responses: payloads are bytes (decode_responses=False)")
        self._gate = Gate()
        self._client = client
        # In a cluster the server that runs a script cannot count the subscribers of another server.
        self.publish_uncounted = "1" if hasattr(client, "nodes_manager") else ""
        self.sync_transport = ClientTransport(self._gate, client)
        self.async_transport = ThreadedTransport(self.sync_transport)

    @property
    def closed(self) -> bool:
        """Whether the storage has been closed."""
        return self._gate.closed

    def dedicated(self) -> Transport:
        """Return the client's transport, which opens connections as needed."""
        return self.sync_transport

    def listener(self, mode: Mode, channel: str, subjects: Subjects, *, stays: bool) -> Listener:
        """Make the listener of a channel."""
        listener = ThreadListener(self._client, channel, subjects, stays=stays)
        return AwaitedListener(listener) if mode == "async" else listener

    def close(self) -> None:
        """Refuse further operations; the client stays open."""
        self._gate.closed = True
