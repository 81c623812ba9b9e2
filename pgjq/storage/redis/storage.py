"""RedisStorage: jobs in Redis or Valkey, as durable as the server is configured to be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pgjq.errors import MissingExtraError, ValidationError
from pgjq.options import check_int
from pgjq.storage.base import Capabilities, Operations
from pgjq.storage.redis import rows
from pgjq.storage.redis.keys import Keys
from pgjq.storage.redis.operations import RedisOperations

if TYPE_CHECKING:
    from pgjq.blocking import Mode
    from pgjq.storage.redis.connections import Connections
    from pgjq.storage.redis.listener import Listener

URL: Final = "redis://localhost:6379"
PORT: Final = 6379
MOST_PORTS: Final = 65535


@dataclass(frozen=True, slots=True)
class Channels:
    """The listeners of one mode."""

    wakes: Listener
    answers: Listener
    events: Listener

    @property
    def all(self) -> tuple[Listener, ...]:
        """All listeners."""
        return self.wakes, self.answers, self.events


@dataclass(slots=True)
class Shared:
    """The state that the operations of both modes share.

    `frozen` is for tests: the time, in microseconds, that the scripts use instead of the server's clock.
    """

    keys: Keys
    publish_uncounted: str
    frozen: int | None = None
    elected: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])

    def clock(self) -> str:
        """Return the time argument of a script: "" for the server's clock."""
        return "" if self.frozen is None else str(self.frozen)


class RedisStorage:
    """Jobs in Redis 6.2 or newer, or in Valkey. Needs the extra `redis`.

    Name the server by `url` (redis://, rediss:// or unix://; redis-py's options may follow a question mark), by `host`
    and `port`, or by `client`: a `redis.Redis`, also of a Sentinel, or a `RedisCluster`. The storage never closes the
    connections of a client; async code calls the client on threads. Nothing is opened before the first operation.
    Storages with different prefixes share nothing. `docs/redis.md` says how to configure the server, and what a
    failover can lose.
    """

    capabilities = Capabilities(
        durable="with `appendonly yes` and `appendfsync always`",
        processes=True,
        machines=True,
        transactions=False,
        leader_election=True,
        notice="at once",
        clock="the server's",
        url="`redis://…`, `rediss://…`",
    )

    def __init__(
        self,
        url: str = URL,
        *,
        host: str | None = None,
        port: int | None = None,
        client: Any = None,
        prefix: str = "jq",
    ) -> None:
        keys = Keys(prefix)
        self.prefix = prefix
        self._connections = connections = _connect(_url(url, host, port), client)
        self.shared = Shared(keys, connections.publish_uncounted)
        self._channels = {mode: self._channels_of(mode) for mode in ("sync", "async")}
        self._sync = RedisOperations("sync", connections.sync_transport, self._channels["sync"], self.shared)
        self._async = RedisOperations("async", connections.async_transport, self._channels["async"], self.shared)

    def _channels_of(self, mode: Mode) -> Channels:
        keys, listener = self.shared.keys, self._connections.listener
        return Channels(
            listener(mode, keys.wake, lambda queue: [queue], stays=True),
            listener(mode, keys.results, rows.ended_jobs_in_message, stays=False),
            listener(mode, keys.events, lambda _: [rows.EVERYTHING], stays=False),
        )

    def operations(self, mode: Mode) -> Operations:
        """Return the operations in one mode."""
        return self._sync if mode == "sync" else self._async

    def dedicated(self) -> Operations:
        """Return blocking operations with a connection of their own."""
        return RedisOperations("sync", self._connections.dedicated(), self._channels["sync"], self.shared)

    def move_clock(self, now: int | None) -> None:
        """Set the scripts' time, in microseconds, or None for the server's; sleepers check again.

        Only for tests, through `pgjq.testing.RedisClock`.
        """
        self.shared.frozen = now
        for channels in self._channels.values():
            channels.wakes.resync()

    def close(self) -> None:
        """Close every connection that the storage opened, and end every wait. May be called twice."""
        if not self._connections.closed:
            self._connections.close()
            for channels in self._channels.values():
                for listener in channels.all:
                    listener.close()


def _connect(url: str, client: Any) -> Connections:
    try:
        from pgjq.storage.redis import connections
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in {"redis", "hiredis"}:
            raise
        raise MissingExtraError("redis") from error
    if client is None:
        return connections.OwnConnections(url)
    if url != URL:
        raise ValidationError("pass the server's address or a client, not both")
    return connections.GivenConnections(client)


def _url(url: str, host: str | None, port: int | None) -> str:
    """Return the server's URL from `url` or from `host` and `port`."""
    if not isinstance(url, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValidationError(f"url must be a str such as {URL!r}, not {type(url).__name__}")
    if host is None and port is None:
        return url
    if url != URL:
        raise ValidationError("pass url, or host and port, not both")
    number = PORT if port is None else check_int("port", port, 1, MOST_PORTS)
    name = host or "localhost"
    return f"redis://[{name}]:{number}" if ":" in name else f"redis://{name}:{number}"
