"""graphile-worker in a process of its own, draining a backlog with local queue and batched completion.

It is installed with npm into a temporary directory when it is first needed. Its settings are those of its
documentation's figures. It may use eleven connections where pgjq uses two for its jobs.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.databases import connect, empty_database, run_statement, statement
from benchmarks.jobs import QUEUE

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from pgjq.embedded import EmbeddedServer

PACKAGE = "graphile-worker@0.17"
SCRIPT = Path(__file__).parent / "graphile_worker.cjs"
ENQUEUED_AT_ONCE = 1_000


class Graphile:
    """The peer: a Node process, and the database it drains."""

    def __init__(self, node: subprocess.Popen[str], conninfo: str) -> None:
        self._node = node
        self._conninfo = conninfo

    def rate(self, values: Sequence[dict[str, Any]]) -> float:
        """Fill the queue, then have it drained."""
        run_statement(self._conninfo, "graphile_truncate")
        with connect(self._conninfo) as connection:
            for start in range(0, len(values), ENQUEUED_AT_ONCE):
                part = [{"identifier": QUEUE, "payload": v} for v in values[start : start + ENQUEUED_AT_ONCE]]
                connection.execute(statement("graphile_enqueue"), {"jobs": json.dumps(part)})
        run_statement(self._conninfo, "graphile_vacuum")
        run_statement(self._conninfo, "checkpoint")
        return len(values) / float(self.ask(str(len(values))))

    def ask(self, order: str) -> str:
        """Tell the process something, and wait for its answer."""
        assert self._node.stdin is not None
        assert self._node.stdout is not None
        self._node.stdin.write(order + "\n")
        self._node.stdin.flush()
        return self._node.stdout.readline().strip()


@contextmanager
def graphile(server: EmbeddedServer) -> Generator[Graphile | None]:
    """Install and start it, or say why not and yield None."""
    with tempfile.TemporaryDirectory(prefix="pgjq-bench-node-") as directory:
        if (missing := _install(Path(directory))) is not None:
            print(f"graphile-worker is left out: {missing}")
            yield None
            return
        with empty_database(server, "graphile") as conninfo, _node(Path(directory), conninfo) as node:
            peer = Graphile(node, conninfo)
            assert peer.ask("install") == "installed"
            yield peer


def _install(directory: Path) -> str | None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        return "it needs node and npm on the PATH"
    command = [npm, "install", "--no-audit", "--no-fund", "--loglevel=error", "--prefix", str(directory), PACKAGE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"npm could not install {PACKAGE}: {done.stderr.strip()}"


@contextmanager
def _node(directory: Path, conninfo: str) -> Generator[subprocess.Popen[str]]:
    script = shutil.copy(SCRIPT, directory)  # Node looks for packages beside the script.
    node = shutil.which("node") or "node"
    with connect(conninfo) as connection:
        info = connection.info
        arguments = [info.host, info.user, info.dbname]
    child = subprocess.Popen([node, script, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.communicate()
