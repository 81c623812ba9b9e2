"""What a program pays before its first line: the CPU time of imports, each in a new process.

The time of an interpreter that imports nothing is taken off every sample. Bytecode is kept, as in an installation. A
producer on PostgreSQL needs psycopg in any case, so `import psycopg` is its floor.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

from benchmarks.measure import Finding, Sampler, Scale, Target, compare, interleave

if TYPE_CHECKING:
    from pgjq.embedded import EmbeddedServer

OURS = {
    "import pgjq": "import pgjq",
    "a client on PostgreSQL": "import pgjq; pgjq.Client; pgjq.PostgresStorage",
    "a queue on PostgreSQL": "import pgjq; pgjq.Queue; pgjq.PostgresStorage",
}
PEERS = ("psycopg", "procrastinate")
HALF = Target(0.5, "at most")


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure every import by turns, against each peer that is installed."""
    del server
    peers = [peer for peer in PEERS if find_spec(peer)]
    statements = OURS | {peer: f"import {peer}" for peer in peers}
    samples = interleave({name: _sampler(statement) for name, statement in statements.items()}, scale.rounds)
    return [
        compare(samples, ours, peer, what=ours, against=f"import {peer}", unit="ms", target=_target(ours, peer))
        for peer in peers
        for ours in OURS
    ]


def _target(ours: str, peer: str) -> Target | None:
    return HALF if (ours, peer) == ("import pgjq", "psycopg") else None


def _sampler(statement: str) -> Sampler:
    return lambda: max(_milliseconds(statement) - _milliseconds("pass"), 0.1)


def _milliseconds(statement: str) -> float:
    """Run a statement in a new interpreter, and return the CPU time that it took."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    before = _children()
    subprocess.run([sys.executable, "-c", statement], env=kept, check=True)
    return (_children() - before) * 1000


def _children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
