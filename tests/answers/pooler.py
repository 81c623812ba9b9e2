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
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Generator
    from pathlib import Path


@contextmanager
def pgbouncer(upstream: str, directory: Path) -> Generator[str]:
    """Start one, and return a connection string that leads through it."""
    program = shutil.which("pgbouncer") or shutil.which("pgbouncer", path="/usr/sbin")
    if program is None:
        pytest.skip("PgBouncer is not installed (Debian: apt-get install pgbouncer)")
    # It refuses to run as root, and as nobody it cannot reach a socket in root's directory: hence the relay.
    with Proxy(upstream) as relay, _running(program, relay.conninfo, directory) as conninfo:
        yield conninfo


@contextmanager
def _running(program: str, upstream: str, directory: Path) -> Generator[str]:
    server = conninfo_to_dict(upstream)
    port = _free_port()
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
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        conninfo = make_conninfo(upstream, host="127.0.0.1", port=port, sslmode="disable", gssencmode="disable")
        _wait_until_it_answers(process, conninfo)
        yield conninfo
    finally:
        process.terminate()
        process.wait()


def _wait_until_it_answers(process: subprocess.Popen[bytes], conninfo: str) -> None:
    while True:
        try:
            psycopg.connect(conninfo, connect_timeout=2).close()
        except psycopg.OperationalError:
            if process.poll() is not None:
                raise
            time.sleep(0.02)
        else:
            return


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
