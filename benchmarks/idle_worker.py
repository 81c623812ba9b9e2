"""What a worker costs by being there: its connections, its statements and its processor time while nothing is to do.

Connections are those of the worker's database; nothing else is connected. Statements are counted by the server, as
transactions of that database: each statement of an idle worker commits by itself. Processor time is that of all threads
of the worker's process, from the kernel. The worker leads the maintenance, so it does more than the others of a fleet.
After a quiet minute it polls less often; that minute is not counted.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchmarks.databases import connect, migrated_database, statement
from benchmarks.measure import Finding, Scale, against_number
from benchmarks.processes import process
from benchmarks.processor_time import seconds
from benchmarks.workers import idle

if TYPE_CHECKING:
    from collections.abc import Generator

    from pgjq.embedded import EmbeddedServer

DATABASE = "idle"
CONNECTIONS = 3
STATEMENTS = 0.5
PERCENT = 0.1


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Watch one idle worker."""
    with (
        _without_autovacuum(server),
        migrated_database(server, DATABASE) as conninfo,
        process(idle, conninfo) as worker,
    ):
        pid: int = worker.recv()
        time.sleep(scale.until_idle)
        connections = _number(server, "connections")
        statements, cpu, start = _number(server, "commits"), seconds(pid), time.monotonic()
        time.sleep(scale.idle)
        took = time.monotonic() - start
        statements, cpu = (_number(server, "commits") - statements) / took, 100 * (seconds(pid) - cpu) / took
    return [
        against_number([connections], CONNECTIONS, what="connections of an idle worker", unit="", side="at most"),
        against_number([statements], STATEMENTS, what="statements of an idle worker", unit="queries/s", side="at most"),
        against_number([cpu], PERCENT, what="processor time of an idle worker", unit="%", side="at most"),
    ]


@contextmanager
def _without_autovacuum(server: EmbeddedServer) -> Generator[None]:
    """Turn autovacuum off meanwhile: its visits, once a minute, count as transactions of the database."""
    with connect(server.conninfo) as connection:
        for value in ("off", "on"):
            connection.execute(f"alter system set autovacuum = {value}")
            connection.execute("select pg_reload_conf()")
            if value == "off":
                yield


def _number(server: EmbeddedServer, name: str) -> float:
    with connect(server.conninfo) as connection:
        row = connection.execute(statement(name), {"name": DATABASE}).fetchone()
    assert row is not None
    return row[0]
