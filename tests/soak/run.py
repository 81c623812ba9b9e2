"""One soak: a server, a fleet that works for so long, a worker that is killed again and again, and the verdict."""

from __future__ import annotations

import os
import signal
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, LiteralString

import psycopg

import pgjq
from pgjq.embedded import EmbeddedServer
from pgjq.embedded_cluster import throwaway_directory
from tests.soak.roles import prepare
from tests.soak.samples import Samples
from tests.worker.worker_processes import ForkedProcesses

if TYPE_CHECKING:
    from pathlib import Path

LASTING = ("worker-1", "async_worker-1", "producer-1", "caller-1")
KILLED = ("worker-2", "async_worker-2")
DRAIN_SECONDS = 120.0
STOP_SECONDS = 30.0
# A crash of the machine is not what is soaked; autovacuum looks often, so that an hour is like a day.
SETTINGS = {"fsync": "off", "autovacuum_naptime": "5s", "log_min_messages": "fatal"}


@dataclass
class Result:
    """What a soak found."""

    seconds: float
    kills: int
    acknowledged: int
    ran: int
    answers: int
    samples: Samples
    wrong: list[str] = field(default_factory=list)

    @property
    def verdict(self) -> str:
        what = "flat" if not self.wrong else "NOT FLAT: " + "; ".join(self.wrong)
        counts = f"{self.acknowledged:,} jobs, {self.answers:,} answers, {self.kills} kills"
        return f"soak: {self.seconds:.0f} s, {counts}: {what}"


class Soak:
    """A fleet on a server of its own, for as long as the block lasts."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._directory = self._stack.enter_context(throwaway_directory("soak-"))
        server = self._stack.enter_context(EmbeddedServer.start(self._directory / "postgres", settings=SETTINGS))
        self._conninfo = server.conninfo
        pgjq.migrate(self._conninfo)
        prepare(self._conninfo)
        self._processes = self._stack.enter_context(ForkedProcesses("tests.soak.roles"))
        self._pids: dict[str, int] = {}
        self._watch = self._stack.enter_context(psycopg.connect(self._conninfo, autocommit=True))

    def close(self) -> None:
        self._stack.close()

    def play(self, seconds: float, *, samples: int = 120, kills: int = 60) -> Result:
        """Work for so long, with that many samples and kills on the way; then drain and judge."""
        for name in (*LASTING, *KILLED):
            self._start(name)
        found, began, taken, killed = Samples(), time.monotonic(), 0, 0
        while (passed := time.monotonic() - began) < seconds:
            if passed >= seconds * taken / samples:
                taken += 1
                found.take(passed, self._watch, self._pids)
            if passed >= seconds * (killed + 1) / (kills + 1):
                self._replace(KILLED[killed % len(KILLED)])
                killed += 1
            time.sleep(min(0.05, seconds / samples / 4))
        return self._judge(found, seconds, killed)

    def _judge(self, samples: Samples, seconds: float, kills: int) -> Result:
        with pgjq.Client(pgjq.PostgresStorage(self._conninfo)) as client:
            client.pause_schedule("every second")
            acknowledged = int(self._stop("producer-1"))
            right, wrong = map(int, self._stop("caller-1").split())
        self._drain()
        ran, ticks = self._read("select sum(jobs) from tally"), self._read("select ticks from pgjq.schedule")
        result = Result(seconds, kills, acknowledged, ran, right, samples, samples.rising())
        if ran != acknowledged:
            result.wrong.append(f"{acknowledged:,} jobs were acknowledged, and {ran:,} ran")
        if not ticks:
            result.wrong.append("the schedule made no job")
        if wrong:
            result.wrong.append(f"{wrong} answers were wrong")
        result.wrong += [f"{name} logged: {text[:2000]}" for name, text in self._logs()]
        return result

    def _start(self, name: str) -> None:
        self._pids[name] = self._processes.fork(name, self._conninfo, str(self._directory))

    def _replace(self, name: str) -> None:
        self._processes.kill(self._pids[name])
        self._start(name)

    def _stop(self, name: str) -> str:
        """End a process with SIGTERM, and return what it wrote down."""
        written: Path = self._directory / name
        os.kill(self._pids[name], signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while not written.exists() or not written.read_text():
            assert time.monotonic() < deadline, f"{name} does not end; {self._processes.complaints()}"
            time.sleep(0.02)
        return written.read_text()

    def _drain(self) -> None:
        deadline = time.monotonic() + DRAIN_SECONDS
        while time.monotonic() < deadline and self._watch.execute("select from pgjq.job limit 1").rowcount:
            time.sleep(0.1)

    def _read(self, query: LiteralString) -> int:
        row = self._watch.execute(query).fetchone()
        return int(row[0] or 0) if row else 0

    def _logs(self) -> list[tuple[str, str]]:
        found = [(path.stem, path.read_text()) for path in sorted(self._directory.glob("*.log"))]
        return [(name, text) for name, text in found if text]
