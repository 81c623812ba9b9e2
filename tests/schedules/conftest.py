"""Storages with clocks that tests move, in both modes, and workers that serve another queue than the schedules'."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from pgjq.testing.clock import START, ManualClock, PostgresClock

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from pathlib import Path

    from pgjq.schedules.schedule import ScheduleTick
    from pgjq.storage.base import Storage

# Polling this rarely cannot hide a missing wake-up.
BLOCK_TIMEOUT = 300.0
LIMIT = 60.0


class StorageHarness:
    """A storage, its clock, and clients: `client` blocks, `call` uses the client of the test's mode."""

    def __init__(self, storage: Storage, clock: Any, mode: str, reopen: Callable[[], Storage]) -> None:
        self.storage = storage
        self.clock = clock
        self.client = pgjq.Client(storage)
        self.now = START
        self.reopen = reopen
        self._runner = asyncio.Runner() if mode == "async" else None
        self._async = pgjq.AsyncClient(storage)

    def call(self, method: str, *args: Any, **options: Any) -> Any:
        if self._runner is None:
            return getattr(self.client, method)(*args, **options)
        return self._runner.run(getattr(self._async, method)(*args, **options))

    def advance(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)
        self.clock.advance(seconds)

    def at(self, time_of_day: str, day: int = 1) -> datetime:
        return datetime.fromisoformat(f"2026-01-{day:02}T{time_of_day}").replace(tzinfo=UTC)

    @contextmanager
    def worker(self, queue: str = "other") -> Generator[pgjq.Queue]:
        """A worker that serves another queue: it ticks all schedules."""
        consumer = pgjq.Queue(queue, storage=self.storage, block_timeout=BLOCK_TIMEOUT)
        consumer.execute(lambda job: job.id)
        with consumer:
            yield consumer

    def ticks(self, name: str, count: int) -> list[ScheduleTick]:
        """Wait until a schedule has this many ticks; return them, the oldest first."""
        wait_until(lambda: len(self.client.get_schedule_ticks(name)) >= count)
        found = self.client.get_schedule_ticks(name)[::-1]
        assert len(found) == count
        return found

    def outcomes(self, name: str, count: int) -> list[str]:
        return [tick.outcome for tick in self.ticks(name, count)]

    def jobs(self, queue: str = "imports") -> list[str]:
        return [job.id for job in self.client.find_jobs(queue, limit=10_000)]

    def close(self) -> None:
        if self._runner is not None:
            self._runner.run(self.storage.operations("async").close())
            self._runner.close()
        self.client.close()


def wait_until(condition: Callable[[], object], limit: float = LIMIT) -> None:
    until = time.monotonic() + limit
    while not condition():
        assert time.monotonic() < until, "this did not come true in time"
        time.sleep(0.005)


@pytest.fixture(params=["memory-sync", "file-async", "postgres-async"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageHarness]:
    kind, mode = request.param.split("-")
    yield from open_harness(kind, mode, request, tmp_path)


def open_harness(kind: str, mode: str, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageHarness]:
    if kind == "postgres":
        conninfo = request.getfixturevalue("database")
        clock = PostgresClock(conninfo)
        harness = StorageHarness(pgjq.PostgresStorage(conninfo), clock, mode, lambda: pgjq.PostgresStorage(conninfo))
        yield harness
        harness.close()
        clock.restore()
        return
    clock = ManualClock()
    make: Callable[[], Any] = (
        (lambda: pgjq.MemoryStorage(clock=clock))
        if kind == "memory"
        else (lambda: pgjq.FileStorage(tmp_path / "jobs", clock=clock))
    )
    harness = StorageHarness(make(), clock, mode, make)
    yield harness
    harness.close()
