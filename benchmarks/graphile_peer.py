"""graphile-worker in a process of its own, draining a backlog with local queue and batched completion.

It is installed with npm into a temporary directory when it is first needed. Its settings are those of its
documentation's figures. It may use eleven connections where pgjq uses two for its jobs.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.databases import connect, empty_database, run_statement, statement
from benchmarks.jobs import QUEUE
from benchmarks.node import installed, started

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from benchmarks.node import Node
    from pgjq.embedded import EmbeddedServer

PACKAGE = "graphile-worker@0.17"
SCRIPT = Path(__file__).parent / "graphile_worker.cjs"
ENQUEUED_AT_ONCE = 1_000


class Graphile:
    """The peer: a Node process, and the database it drains."""

    def __init__(self, node: Node, conninfo: str) -> None:
        self._node = node
        self._conninfo = conninfo

    def enqueue_rate(self, count: int, batch: int) -> float:
        """Empty the tables, then time an enqueue in batches, from JavaScript values of the same size."""
        run_statement(self._conninfo, "graphile_truncate")
        return count / float(self._node.ask(f"enqueue {count} {batch}"))

    def rate(self, values: Sequence[dict[str, Any]]) -> float:
        """Fill the queue, then have it drained."""
        run_statement(self._conninfo, "graphile_truncate")
        with connect(self._conninfo) as connection:
            for start in range(0, len(values), ENQUEUED_AT_ONCE):
                part = [{"identifier": QUEUE, "payload": v} for v in values[start : start + ENQUEUED_AT_ONCE]]
                connection.execute(statement("graphile_enqueue"), {"jobs": json.dumps(part)})
        run_statement(self._conninfo, "graphile_vacuum")
        run_statement(self._conninfo, "checkpoint")
        return len(values) / float(self._node.ask(str(len(values))))


@contextmanager
def graphile(server: EmbeddedServer) -> Generator[Graphile | None]:
    """Install and start it, or say why not and yield None."""
    with installed(PACKAGE) as directory:
        if directory is None:
            yield None
            return
        with empty_database(server, "graphile") as conninfo:
            with connect(conninfo) as connection:
                info = connection.info
                where = [info.host, info.user, info.dbname]
            with started(directory, SCRIPT, *where) as node:
                assert node.ask("install") == "installed"
                yield Graphile(node, conninfo)
