"""A contender as the measuring process sees it: a child process that answers orders, and what it uses when idle."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psycopg
import redis

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

HERE = Path(__file__).parent / "contenders"
TICKS = 100  # Of the processor's clock, per second.
SESSIONS = "select count(*) from pg_stat_activity where datname = %s and pid <> pg_backend_pid()"
STATEMENTS = "select xact_commit + xact_rollback from pg_stat_database where datname = %s"


class PeerError(Exception):
    """The contender could not do it."""


@dataclass(frozen=True)
class Idle:
    """What a worker without jobs uses."""

    connections: int
    statements: float
    processor: float
    memory: float


class Peer:
    """One contender, running."""

    def __init__(self, name: str, command: Sequence[str], address: str, folder: Path, errors: Path) -> None:
        self.name = name
        self.address = address
        self.version = self.settings = ""
        self._log = errors.open("w")
        self._process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True
        )

    def __enter__(self) -> Self:
        answer = self.ask("setup")
        assert answer is not None
        self.version, self.settings = answer["version"], answer["settings"]
        return self

    def __exit__(self, *exc: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._log.close()

    def ask(self, order: str, **arguments: Any) -> Mapping[str, Any] | None:
        """Give an order; None if the contender has nothing like that."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps({"do": order, **arguments}) + "\n")
            self._process.stdin.flush()
        lines = iter(self._process.stdout.readline, "")
        answer = next((json.loads(line) for line in lines if line.startswith("{")), {"error": "it has ended"})
        if "error" in answer:
            raise PeerError(f"{self.name}, {order}: {answer['error']}")
        return None if "unsupported" in answer else answer

    def idle(self, seconds: float, server: str) -> Idle:
        """Start a worker without jobs, and look at what it uses for a while."""
        self.ask("idle")
        time.sleep(2.0)
        before = self._statements(server), self._processor()
        time.sleep(seconds)
        after = self._statements(server), self._processor()
        found = Idle(
            self._connections(server),
            (after[0] - before[0]) / seconds,
            (after[1] - before[1]) / seconds,
            self._memory(),
        )
        self.ask("end")
        return found

    def _connections(self, server: str) -> int:
        if self.address.startswith("redis"):
            with redis.Redis.from_url(self.address) as client:
                return len(client.client_list()) - 1  # type: ignore[arg-type]
        with psycopg.connect(server, autocommit=True) as connection:
            return connection.execute(SESSIONS, [self.name]).fetchone()[0]  # type: ignore[index]

    def _statements(self, server: str) -> float:
        if self.address.startswith("redis"):
            with redis.Redis.from_url(self.address) as client:
                return float(client.info("stats")["total_commands_processed"]) - 2  # type: ignore[index]
        with psycopg.connect(server, autocommit=True) as connection:
            return float(connection.execute(STATEMENTS, [self.name]).fetchone()[0])  # type: ignore[index]

    def _processor(self) -> float:
        """Return the milliseconds that the process has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / TICKS

    def _memory(self) -> float:
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) / 1024
