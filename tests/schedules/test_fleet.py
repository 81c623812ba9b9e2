"""A fleet that stops, starts and is killed while the clock moves makes each tick exactly as `missed` says."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from tests.schedules.conftest import open_place, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.schedules.conftest import Place

MINUTE = timedelta(minutes=1)
WORKERS, SCHEDULES, HOUR = 10, 100, 3600
PROCESS = """
import pgjq, sys
queue = pgjq.Queue(sys.argv[2], storage=pgjq.PostgresStorage(sys.argv[1]), block_timeout=300)
queue.execute(lambda job: None)
queue.start()
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["memory-sync", "file-sync", "postgres-sync"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind, mode = request.param.split("-")
    yield from open_place(kind, mode, request, tmp_path)


def due(every: int, after: datetime, until: datetime) -> list[datetime]:
    """The ticks in `(after, until]`, by looking at every minute of the hour."""
    first = after.replace(second=0, microsecond=0)
    minutes = (first + n * MINUTE for n in range(1 + int((until - first).total_seconds()) // 60))
    return [minute for minute in minutes if after < minute <= until and minute.minute % every == 0]


def kept(missed: str, ticks: list[datetime], now: datetime) -> list[datetime]:
    match missed:
        case "all":
            return ticks
        case "once":
            return ticks[-1:]
        case _:
            return [tick for tick in ticks if now - tick <= MINUTE]


def settled(place: Place) -> bool:
    runs = [schedule.next_run_at for schedule in place.client.get_schedules()]
    return all(run is not None and run > place.now for run in runs)


def test_ten_workers_make_each_tick_as_missed_says(place: Place) -> None:
    choice = random.Random(random.random())  # noqa: S311  (pytest-randomly prints the seed, and can repeat it)
    wanted = {f"s{n}": (choice.choice((5, 6, 10, 15, 20)), ("all", "once", "skip")[n % 3]) for n in range(SCHEDULES)}
    for name, (every, missed) in wanted.items():
        place.client.create_schedule(name, "imports", cron=f"*/{every} * * * *", missed=missed)
    expected: set[str] = set()
    running: list[Any] = []
    reached, end = place.now, place.now + timedelta(seconds=HOUR)
    while place.now < end:
        while running and choice.random() < 0.5:  # Some stop, or all of them.
            running.pop(choice.randrange(len(running))).stop(grace=0)
        place.advance(choice.choice((20, 60, 240, 420)))
        if choice.random() < 0.3:  # The clock steps back, and on.
            wait_until(lambda: not running or settled(place))  # Else a part of the ticks is due at the earlier time.
            place.advance(-200)
            place.advance(200)
        while choice.random() < 0.6 and len(running) < WORKERS:
            running.append(pgjq.Queue(f"q{len(running)}", storage=place.storage, block_timeout=300))
            running[-1].execute(lambda job: job.id)
            running[-1].start()
        if running:
            wait_until(partial(settled, place))
            for name, (every, missed) in wanted.items():
                for tick in kept(missed, due(every, reached, place.now), place.now):
                    expected.add(f"{name}@{tick:%Y-%m-%dT%H:%M:%SZ}")
            reached = place.now
    for queue in running:
        queue.stop(grace=0)
    found = place.jobs()
    assert len(found) == len(set(found))
    assert set(found) == expected


@pytest.mark.parametrize("place", ["postgres-sync"], indirect=True)
def test_processes_that_are_killed_around_a_tick_lose_and_repeat_none(place: Place, database: str) -> None:
    for n in range(20):
        place.client.create_schedule(f"s{n}", "imports", cron="* * * * *", missed="all")
    for n in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", PROCESS, database, f"q{n}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"up\n"
            place.advance(60)
            process.kill()  # In the middle of its ticks, or before, or after.
    with place.worker():
        wait_until(lambda: settled(place))
    assert sorted(place.jobs()) == sorted(f"s{n}@2026-01-01T00:0{m}:00Z" for n in range(20) for m in (1, 2, 3))
