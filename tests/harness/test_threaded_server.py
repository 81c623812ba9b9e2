"""Tests of the tests' own server: whatever it accepted is closed with it."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.worker.proxy import Proxy

NOWHERE = "host=127.0.0.1 port=1 dbname=none"


def _open_sockets() -> set[str]:
    targets = (str(entry.readlink()) for entry in Path("/proc/self/fd").iterdir() if entry.is_symlink())
    return {target for target in targets if target.startswith("socket:")}


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="this system has no /proc")
def test_connections_that_are_being_accepted_are_closed_with_the_server() -> None:
    before = _open_sockets()
    servers = []  # Kept, so that no garbage collector closes what they left open.
    for clients in range(60):
        with ExitStack() as stack:
            servers.append(server := Proxy(NOWHERE))
            for _ in range(clients % 4):
                stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            server.close()
    assert _open_sockets() - before == set()
