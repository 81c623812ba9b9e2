"""A fleet that stops, starts and is killed while the clock moves makes each tick exactly as `missed` says."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

import pgjq
from tests.schedules.conftest import open_harness, wait_until
from tests.schedules.processes import Workers

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage
    from tests.schedules.conftest import StorageHarness

MINUTE = timedelta(minutes=1)
WORKERS, SCHEDULES, HOUR = 10, 100, 3600
TICKS, KILLS = 10, 5


@pytest.fixture(params=["memory-sync", "file-sync", "postgres-sync"])
def harness(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorageHarness]:
    kind, mode = request.param.split("-")
    yield from open_harness(kind, mode, request, tmp_path)


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


def settled(harness: StorageHarness) -> bool:
    runs = [schedule.next_run_at for schedule in harness.client.get_schedules()]
    return all(run is not None and run > harness.now for run in runs)


class Threads:
    """Workers in this process."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.running: list[pgjq.Queue] = []

    def start(self, count: int) -> None:
        for _ in range(count):
            queue = pgjq.Queue(f"q{len(self.running)}", storage=self._storage, block_timeout=300)
            queue.execute(lambda job: job.id)
            queue.start()
            self.running.append(queue)

    def end(self, choice: random.Random) -> None:
        self.running.pop(choice.randrange(len(self.running))).stop(grace=0)


class Processes(Workers):
    """Workers in processes, most of which do not end by themselves."""

    def end(self, choice: random.Random) -> None:
        pid = choice.choice(self.running)
        if choice.random() < 0.3:
            self.stop(pid)
        else:
            self.kill(pid)


def end_some(fleet: Any, choice: random.Random, most: int) -> None:
    """End none, some or all of the workers that may end."""
    for _ in range(min(choice.choice((0, 1, 2, WORKERS)), most)):
        fleet.end(choice)


def play(harness: StorageHarness, fleet: Any, choice: random.Random) -> None:
    """Let an hour pass in steps, in which workers start and end and the clock is set; compare the jobs at the end."""
    wanted = {f"s{n}": (choice.choice((5, 6, 10, 15, 20)), ("all", "once", "skip")[n % 3]) for n in range(SCHEDULES)}
    for name, (every, missed) in wanted.items():
        harness.client.create_schedule(name, "imports", cron=f"*/{every} * * * *", missed=missed)
    expected: set[str] = set()
    reached, end = harness.now, harness.now + timedelta(seconds=HOUR)
    fleet.start(WORKERS)
    while harness.now < end:
        end_some(fleet, choice, len(fleet.running))  # Before the tick.
        harness.advance(choice.choice((20, 60, 600, 900)))
        fleet.start(max(0, choice.choice((0, 1, WORKERS, WORKERS)) - len(fleet.running)))
        end_some(fleet, choice, len(fleet.running) - 1)  # In the middle of their ticks: others go on at the same time.
        if fleet.running:
            wait_until(partial(settled, harness))
            for name, (every, missed) in wanted.items():
                for tick in kept(missed, due(every, reached, harness.now), harness.now):
                    expected.add(f"{name}@{tick:%Y-%m-%dT%H:%M:%SZ}")
            reached = max(reached, harness.now)
            if choice.random() < 0.3:
                harness.advance(-choice.choice((30, 200)))  # The clock steps back; the ticks since then were made.
    found = harness.jobs()
    assert len(found) == len(set(found))
    assert set(found) == expected


def test_ten_workers_make_each_tick_as_missed_says(harness: StorageHarness, request: pytest.FixtureRequest) -> None:
    choice = random.Random(random.random())  # noqa: S311  (pytest-randomly prints the seed, and can repeat it)
    if isinstance(harness.storage, pgjq.PostgresStorage):
        with Processes(request.getfixturevalue("database")) as processes:
            play(harness, processes, choice)
        return
    threads = Threads(harness.storage)
    play(harness, threads, choice)
    while threads.running:
        threads.end(choice)


@pytest.mark.parametrize("harness", ["postgres-sync"], indirect=True)
def test_a_worker_that_was_frozen_over_many_ticks_repeats_none(harness: StorageHarness, database: str) -> None:
    for n in range(20):
        harness.client.create_schedule(f"s{n}", "imports", cron="* * * * *", missed="all")
    with Workers(database) as workers:
        for _ in range(2):
            workers.start()
        for n in range(6):
            frozen = workers.running[n % 2]
            harness.advance(60)
            workers.freeze(frozen)  # Before, in the middle of, or after its ticks; rows that it has locked are skipped.
            if n % 2:
                harness.advance(60)
            workers.thaw(frozen)
            wait_until(lambda: settled(harness))
    assert sorted(harness.jobs()) == sorted(f"s{n}@2026-01-01T00:0{m}:00Z" for n in range(20) for m in range(1, 10))


def missed_ticks(storage: Any, since: datetime) -> None:
    """Create schedules with ten ticks each, all of which are missed when the clock goes on."""
    with pgjq.Client(storage) as client:
        for n in range(SCHEDULES):
            end = since + (TICKS + 0.5) * MINUTE
            client.create_schedule(f"s{n}", "imports", every=MINUTE, end_at=end, missed="all")


def kill_while_they_catch_up(storage: Any, url: str) -> None:
    with pgjq.Client(storage) as client, Workers(url) as workers:
        for _ in range(KILLS):
            workers.start()
            workers.kill(workers.running[0])
            jobs = [job.id.partition("@")[0] for job in client.find_jobs("imports", limit=10_000)]
            assert {jobs.count(name) for name in jobs} <= {TICKS}  # All ticks of a schedule, or none.
        workers.start()
        wait_until(lambda: all(schedule.next_run_at is None for schedule in client.get_schedules()))
        assert len({job.id for job in client.find_jobs("imports", limit=10_000)}) == SCHEDULES * TICKS


@pytest.mark.parametrize("harness", ["postgres-sync"], indirect=True)
def test_workers_that_are_killed_while_they_catch_up_leave_whole_schedules(
    harness: StorageHarness, database: str
) -> None:
    missed_ticks(harness.reopen(), harness.now)
    harness.advance(HOUR)
    kill_while_they_catch_up(harness.reopen(), database)


def test_the_same_in_a_directory(tmp_path: Path) -> None:
    earlier = datetime.now(UTC) - timedelta(seconds=HOUR)
    missed_ticks(pgjq.FileStorage(tmp_path / "jobs", clock=lambda: earlier), earlier)
    kill_while_they_catch_up(pgjq.FileStorage(tmp_path / "jobs"), f"file://{tmp_path}/jobs")
