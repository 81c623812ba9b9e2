"""Where a server is: from a URL to connections of redis-py, which we keep in pools of our own (pool.py, link.py)."""

from __future__ import annotations

import asyncio
import re
from typing import Any, Final

import redis
import redis.asyncio
from redis import connection
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import NoBackoff
from redis.retry import Retry

from pgjq.redaction import read_redacted

# What a URL may say otherwise. A peer that is gone is noticed by the call that it does not answer.
DEFAULTS: Final[dict[str, Any]] = {
    "socket_timeout": 15.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "client_name": "pgjq",
    "protocol": 2,
}
# What a URL may not say, because we would not keep to it.
OURS: Final = {
    "protocol": "pgjq speaks version 2 of the protocol",
    "max_connections": "pgjq keeps connections in pools of its own",
}


class Address:
    """A URL, and the connections that it leads to. Making one does not connect it."""

    def __init__(self, url: str) -> None:
        read_redacted(lambda: self._read(url), str(url), "this is not a URL of Redis", ValueError, TypeError)

    def _read(self, url: str) -> None:
        blocking: Any = redis.ConnectionPool
        awaiting: Any = redis.asyncio.ConnectionPool
        usual = _defaults(url)
        pool = blocking.from_url(url, retry=Retry(NoBackoff(), 0), **usual)
        async_pool = awaiting.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **usual)
        for settings in (pool.connection_kwargs, async_pool.connection_kwargs):
            settings["decode_responses"] = False  # Payloads are bytes, whatever a URL says.
        # Waiting in redis-py, on Python 3.11, costs a task for each command, and forgets that it was cancelled.
        self.patience: float | None = async_pool.connection_kwargs.pop("socket_timeout")
        async_pool.connection_kwargs["socket_timeout"] = None
        self._pool, self._async_pool = pool, async_pool
        self.connection()

    def connection(self, patience: float | None = None) -> Any:
        """Make a connection for threads; `patience` is how long to wait for anything, if not as long as usual."""
        limits = {} if patience is None else dict.fromkeys(("socket_timeout", "socket_connect_timeout"), patience)
        return self._pool.connection_class(**self._pool.connection_kwargs | limits)

    async def open_stream(self) -> asyncio.StreamWriter:
        """Connect on an event loop, and take the stream over; `patience` is how long to wait for its answers."""
        connection = self._async_pool.connection_class(**self._async_pool.connection_kwargs)
        try:
            async with asyncio.timeout(self.patience):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        stream = connection._writer  # noqa: SLF001  (there is no other way to have it)
        connection._reader = connection._writer = None  # noqa: SLF001
        return stream

    def client(self) -> Any:
        """Make a client, for what only a client can do: listen."""
        return redis.Redis(connection_pool=self._pool)


def _defaults(url: str) -> dict[str, Any]:
    """Find what holds unless the URL says otherwise; a socket in a directory has nobody to keep alive."""
    if (late := url.rpartition("@")[0]) and re.search(r"://[^/?#]*[/?#]", late):
        raise ValueError("an @ comes after a /, ? or #; in a password these are written %2F, %3F and %23")
    if re.match(r"unix://[^/@]+/", url):
        raise ValueError("a socket is named with three slashes, as unix:///run/redis.sock")
    driver: Any = connection
    said: dict[str, Any] = driver.parse_url(url)
    for option, why in OURS.items():
        if option in said:
            raise ValueError(f"leave {option} out: {why}")
    return {option: value for option, value in DEFAULTS.items() if option != "socket_keepalive" or "path" not in said}
