"""Where the server of a URL is, and how to open a socket to it.

redis-py reads the URL and its options; pgjq opens the sockets, so that it can wait on them with deadlines and share one
among the callers of an event loop.
"""

from __future__ import annotations

import asyncio
import re
import socket
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

import redis
import redis.asyncio
from redis import connection
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Lost
from redis.retry import Retry

from pgjq.redaction import read_redacted
from pgjq.storage.redis.resp import handshake

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Generator

P = TypeVar("P", bound=asyncio.BaseProtocol)

# A URL may override these. A lost peer is noticed by the timeout of the next call.
DEFAULTS: Final[dict[str, Any]] = {
    "socket_timeout": 10.0,
    "socket_connect_timeout": 5.0,
    "socket_keepalive": True,
    "client_name": "pgjq",
    "protocol": 2,
}
# Options that a URL may not set, because pgjq would ignore them.
REFUSED: Final = {
    "protocol": "pgjq speaks version 2 of the protocol",
    "max_connections": "pgjq keeps connections in pools of its own",
    "retry_on_timeout": "pgjq never sends a command twice",
    "retry_on_error": "pgjq never sends a command twice",
}


class Address:
    """Open sockets to the server of a URL. The constructor does not connect.

    `patience` is how long a server may be silent while it owes a reply, in seconds; `handshake` the commands that begin
    a connection.
    """

    def __init__(self, url: str) -> None:
        read_redacted(lambda: self._read(url), str(url), "this is not a URL of Redis", ValueError, TypeError)

    def _read(self, url: str) -> None:
        blocking: Any = redis.ConnectionPool
        awaiting: Any = redis.asyncio.ConnectionPool
        defaults = _defaults(url)
        self._pool = blocking.from_url(url, retry=Retry(NoBackoff(), 0), **defaults)
        self._pool.connection_kwargs["decode_responses"] = False  # Payloads are bytes, whatever a URL says.
        pool = awaiting.from_url(url, **defaults)
        self._settings: Any = pool.connection_class(**pool.connection_kwargs)  # Only read; it never connects.
        settings = self._settings
        self.patience: float | None = settings.socket_timeout
        self.handshake = handshake(settings.username, settings.password, settings.client_name, settings.db)
        self._path: str | None = getattr(settings, "path", None)
        self._server: tuple[str, int] = getattr(settings, "host", ""), getattr(settings, "port", 0)

    def open_socket(self) -> socket.socket:
        """Connect."""
        seconds = self._settings.socket_connect_timeout
        with self._named():
            if self._path is not None:
                return _unix_socket(self._path, seconds)
            plain = socket.create_connection(self._server, seconds)
            try:
                self._configure(plain)
                tls = self._tls()
                return plain if tls is None else tls.wrap_socket(plain, server_hostname=self._settings.host)
            except BaseException:
                plain.close()
                raise

    async def open_protocol(self, make: Callable[[], P]) -> P:
        """Connect on the running event loop."""
        loop = asyncio.get_running_loop()
        with self._named():
            async with asyncio.timeout(self._settings.socket_connect_timeout):
                if self._path is not None:
                    _, protocol = await loop.create_unix_connection(make, self._path)
                    return protocol
                transport, protocol = await loop.create_connection(make, *self._server, ssl=self._tls())
            try:
                self._configure(transport.get_extra_info("socket"))
            except BaseException:
                transport.abort()
                raise
            return protocol

    def client(self) -> Any:
        """Make a client, which only listening on a thread needs."""
        return redis.Redis(connection_pool=self._pool)

    def _tls(self) -> ssl.SSLContext | None:
        settings = getattr(self._settings, "ssl_context", None)
        return None if settings is None else settings.get()

    def _configure(self, plain: socket.socket) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, bool(self._settings.socket_keepalive))

    @contextmanager
    def _named(self) -> Generator[None]:
        """Name the server in errors."""
        try:
            yield
        except OSError as error:
            where = self._path or "{}:{}".format(*self._server)
            raise Lost(f"cannot connect to {where}: {str(error) or 'no answer in time'}") from error


def _unix_socket(path: str, seconds: float | None) -> socket.socket:
    plain = socket.socket(socket.AF_UNIX)
    try:
        plain.settimeout(seconds)
        plain.connect(path)
    except BaseException:
        plain.close()
        raise
    return plain


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
