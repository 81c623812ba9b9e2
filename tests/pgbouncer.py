"""A real PgBouncer between a storage and its server, pooling by transaction."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.programs import missing
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def pgbouncer(upstream: str, directory: Path) -> Generator[str]:
    """Start one, and return a connection string that leads through it."""
    if not is_installed():
        missing("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    # It refuses to run as root, and as nobody it cannot reach a socket in root's directory: hence the relay.
    with Proxy(upstream) as relay, PgBouncer(relay.conninfo, directory) as bouncer:
        yield bouncer.conninfo


class PgBouncer:
    """One process, on a port of its own; `upstream` must be reachable by TCP. It may be killed and started again."""

    def __init__(self, upstream: str, directory: Path) -> None:
        self._upstream = upstream
        self._directory = directory
        while True:  # Another port, if the first one was taken in the meantime.
            self._port = _free_port()
            self.conninfo = make_conninfo(
                upstream, host="127.0.0.1", port=self._port, sslmode="disable", gssencmode="disable"
            )
            self._process = _start(_program(), upstream, directory, self._port)
            if _answers(self._process, self.conninfo):
                return
            log = (directory / "pgbouncer.log").read_text()
            if "ddress already in use" not in log:
                raise RuntimeError(f"PgBouncer does not start: {log}")

    def kill(self) -> None:
        """`kill -9`."""
        self._process.kill()
        self._process.wait()

    def start(self) -> None:
        """Start it again after `kill`, on the same port."""
        self._process = _start(_program(), self._upstream, self._directory, self._port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.terminate()
        self._process.wait()


def is_installed() -> bool:
    """Tell whether PgBouncer is on this machine."""
    return bool(_program())


def _program() -> str:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin") or ""


def _start(program: str, upstream: str, directory: Path, port: int) -> subprocess.Popen[bytes]:
    server = conninfo_to_dict(upstream)
    settings = directory / "pgbouncer.ini"
    settings.write_text(
        "[databases]\n"
        f"* = host={server['host']} port={server['port']} user={server['user']}\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
        "server_login_retry = 1\n"  # By default it tries to reach a server that was away every 15 s.
        "ignore_startup_parameters = extra_float_digits\n"
    )
    command = [program, str(settings)]
    if os.getuid() == 0:
        command = [program, "-u", "nobody", str(settings)]
    with (directory / "pgbouncer.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def _answers(process: subprocess.Popen[bytes], conninfo: str) -> bool:
    """Wait until it answers, or has ended."""
    while process.poll() is None:
        try:
            psycopg.connect(conninfo, connect_timeout=2).close()
        except psycopg.OperationalError:
            time.sleep(0.02)
        else:
            return True
    return False


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
