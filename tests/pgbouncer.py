"""A real PgBouncer between a storage and its server, pooling by transaction."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

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
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        missing("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    # It refuses to run as root, and as nobody it cannot reach a socket in root's directory: hence the relay.
    with Proxy(upstream) as relay, _running(program, relay.conninfo, directory) as conninfo:
        yield conninfo


@contextmanager
def _running(program: str, upstream: str, directory: Path) -> Generator[str]:
    process, conninfo = _started(program, upstream, directory)
    try:
        yield conninfo
    finally:
        process.terminate()
        process.wait()


def _started(program: str, upstream: str, directory: Path) -> tuple[subprocess.Popen[bytes], str]:
    """Start it, on another port if the first one was taken in the meantime."""
    while True:
        port = _free_port()
        conninfo = make_conninfo(upstream, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        process = _start(program, upstream, directory, port)
        if _answers(process, conninfo):
            return process, conninfo
        log = (directory / "pgbouncer.log").read_text()
        if "ddress already in use" not in log:
            raise RuntimeError(f"PgBouncer does not start: {log}")


def _start(program: str, upstream: str, directory: Path, port: int) -> subprocess.Popen[bytes]:
    server = conninfo_to_dict(upstream)
    settings = directory / "pgbouncer.ini"
    settings.write_text(
        "[databases]\n"
        f"* = host={server['host']} port={server['port']} user={server['user']}\n"
        "[pgbouncer]\n"
        f"listen_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n"
        "auth_type = any\npool_mode = transaction\ndefault_pool_size = 4\n"
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
