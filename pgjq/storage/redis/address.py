"""Turn a URL into redis-py connections, which pgjq keeps in pools of its own."""

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

# A URL may override these. A lost peer is noticed by the timeout of the next call.
DEFAULTS: Final[dict[str, Any]] = {
    "socket_timeout": 15.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "client_name": "pgjq",
    "protocol": 2,
}
# Options that a URL may not set, because pgjq would ignore them.
REFUSED: Final = {
    "protocol": "pgjq speaks version 2 of the protocol",
    "max_connections": "pgjq keeps connections in pools of its own",
}


class Address:
    """Make connections to the server of a URL. The constructor does not connect."""

    def __init__(self, url: str) -> None:
        read_redacted(lambda: self._read(url), str(url), "this is not a URL of Redis", ValueError, TypeError)

    def _read(self, url: str) -> None:
        blocking: Any = redis.ConnectionPool
        awaiting: Any = redis.asyncio.ConnectionPool
        defaults = _defaults(url)
        pool = blocking.from_url(url, retry=Retry(NoBackoff(), 0), **defaults)
        async_pool = awaiting.from_url(url, retry=AsyncRetry(NoBackoff(), 0), **defaults)
        for settings in (pool.connection_kwargs, async_pool.connection_kwargs):
            settings["decode_responses"] = False  # Payloads are bytes, whatever a URL says.
        # On Python 3.11 a timeout in redis-py costs a task for each command, and swallows a cancellation.
        self.patience: float | None = async_pool.connection_kwargs.pop("socket_timeout")
        async_pool.connection_kwargs["socket_timeout"] = None
        self._pool, self._async_pool = pool, async_pool
        self.connection()

    def connection(self, patience: float | None = None) -> Any:
        """Make a blocking connection; `patience` replaces the URL's timeouts, in seconds."""
        limits = {} if patience is None else dict.fromkeys(("socket_timeout", "socket_connect_timeout"), patience)
        return self._pool.connection_class(**self._pool.connection_kwargs | limits)

    async def open_stream(self) -> asyncio.StreamWriter:
        """Connect on the running event loop; the caller limits the wait for replies to `patience`."""
        connection = self._async_pool.connection_class(**self._async_pool.connection_kwargs)
        try:
            async with asyncio.timeout(self.patience):
                await connection.connect()
        except BaseException:
            await connection.disconnect(nowait=True)
            raise
        stream = connection._writer  # noqa: SLF001  (redis-py has no public access to the stream)
        connection._reader = connection._writer = None  # noqa: SLF001
        return stream

    def client(self) -> Any:
        """Make a client, which only listening needs."""
        return redis.Redis(connection_pool=self._pool)


def _defaults(url: str) -> dict[str, Any]:
    """Return the defaults that the URL may override; a Unix socket needs no keepalive."""
    if (late := url.rpartition("@")[0]) and re.search(r"://[^/?#]*[/?#]", late):
        raise ValueError("an @ comes after a /, ? or #; in a password these are written %2F, %3F and %23")
    if re.match(r"unix://[^/@]+/", url):
        raise ValueError("a socket is named with three slashes, as unix:///run/redis.sock")
    driver: Any = connection
    parsed: dict[str, Any] = driver.parse_url(url)
    for option, why in REFUSED.items():
        if option in parsed:
            raise ValueError(f"leave {option} out: {why}")
    return {option: value for option, value in DEFAULTS.items() if option != "socket_keepalive" or "path" not in parsed}
