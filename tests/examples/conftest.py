"""The examples as people run them: in processes of their own, with a database of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import httpx2
import pytest
from psycopg.conninfo import conninfo_to_dict

import pgjq

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
BIN = Path(sys.executable).parent


class Processes:
    """A database, and the processes that were started on it; they end with the test."""

    def __init__(self, url: str, stack: ExitStack) -> None:
        self.url = url
        self._stack = stack

    def start(self, program: str, *words: str, pass_fds: tuple[int, ...] = ()) -> subprocess.Popen[str]:
        """Start a program of the virtual environment, among the examples."""
        process = subprocess.Popen(
            [BIN / program, *words],
            cwd=EXAMPLES,
            env={**os.environ, "PGJQ_URL": self.url},
            stdout=subprocess.PIPE,
            text=True,
            pass_fds=pass_fds,
        )
        self._stack.callback(self._end, process)
        return process

    def serve(self, app: str) -> httpx2.Client:
        """Start a web application; requests before its first answer wait."""
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen()
            port = listener.getsockname()[1]
            self.start("uvicorn", app, "--fd", str(listener.fileno()), pass_fds=(listener.fileno(),))
        return self._stack.enter_context(httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=60))

    def _end(self, process: subprocess.Popen[str]) -> None:
        process.terminate()
        process.communicate(timeout=60)


@pytest.fixture
def processes(empty_database: str) -> Iterator[Processes]:
    with ExitStack() as stack:
        yield Processes("postgresql:///?" + urlencode(conninfo_to_dict(empty_database)), stack)


@pytest.fixture
def client(processes: Processes) -> Iterator[pgjq.Client]:
    pgjq.migrate(processes.url)
    with pgjq.Client(pgjq.open_storage(processes.url)) as client:
        yield client
