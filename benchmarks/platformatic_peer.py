"""@platformatic/job-queue, the queue of document 003, on Redis, on files and in memory."""

from __future__ import annotations

import json
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.node import installed, started

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from benchmarks.node import Node

PACKAGE = "@platformatic/job-queue@0.5.0"
OLDEST_NODE = 22
SCRIPT = Path(__file__).parent / "platformatic_worker.mjs"


class Platformatic:
    """The peer: a Node process."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def rate(self, kind: str, where: str, values: Sequence[dict[str, Any]]) -> float:
        """Have jobs enqueued and drained; return jobs a second."""
        return float(self._node.ask(json.dumps({"kind": kind, "where": where, "drain": values})))

    def trip(self, kind: str, where: str, count: int, pause: float) -> float:
        """Have questions asked, one after the other; return the median of their milliseconds."""
        return float(self._node.ask(json.dumps({"kind": kind, "where": where, "ask": count, "pause": pause * 1000})))


@contextmanager
def platformatic() -> Generator[Platformatic | None]:
    """Install and start it, or say why not and yield None."""
    with installed(PACKAGE, oldest=OLDEST_NODE) as directory:
        if directory is None:
            yield None
            return
        with started(directory, SCRIPT, oldest=OLDEST_NODE) as node:
            yield Platformatic(node)
