"""The lease protocol and schedules in seeded histories: in memory, on other storages, and with mutants."""

from __future__ import annotations

from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import FileStorage, MemoryStorage
from pgjq.storage.model import runs, schedules
from pgjq.storage.model.jobs import Jobs
from pgjq.testing import ManualClock, PostgresClock, RedisClock
from pgjq.testing.simulation import Simulation, play, play_all
from pgjq.testing.simulation_losses import LossySimulation, play_lossy
from pgjq.testing.simulation_schedules import ScheduledSimulation, play_scheduled

if TYPE_CHECKING:
    from pathlib import Path

    from pgjq import PostgresStorage, RedisStorage

STORIES = 3_000  # `make simulate` plays a million.
ON_POSTGRES = range(25)
ON_REDIS = range(40)


def test_thousands_of_stories_keep_every_invariant() -> None:
    assert play_all(range(STORIES)) == STORIES


@pytest.mark.parametrize("seed", [28, 92, 217, 382])
def test_seeds_in_which_a_reaper_ended_a_run_whose_settlement_was_not_answered(seed: int) -> None:
    play_lossy(seed)


def test_lost_replies_keep_every_invariant() -> None:
    for seed in range(STORIES // 3):
        play_lossy(seed)


def test_lost_replies_have_the_same_answers_on_postgres(database: str, postgres: PostgresStorage) -> None:
    clock = PostgresClock(database)
    for seed in range(12):
        answers = LossySimulation(seed, postgres, clock, queue=f"lossy {seed}").play()
        assert answers == play_lossy(seed), f"seed {seed} tells PostgreSQL and memory apart"


def test_lost_replies_have_the_same_answers_on_redis(redis_storage: RedisStorage) -> None:
    clock = RedisClock(redis_storage)
    for seed in range(12):
        answers = LossySimulation(seed, redis_storage, clock, queue=f"lossy {seed}").play()
        assert answers == play_lossy(seed), f"seed {seed} tells Redis and memory apart"


def test_schedules_keep_every_invariant() -> None:
    assert play_schedules(STORIES // 3)


def play_schedules(count: int) -> bool:
    return all(play_scheduled(seed) for seed in range(count))


def test_schedules_have_the_same_answers_on_postgres(database: str, postgres: PostgresStorage) -> None:
    clock = PostgresClock(database)
    for seed in range(12):
        answers = ScheduledSimulation(seed, postgres, clock, queue=f"scheduled {seed}").play()
        assert without_names(answers) == without_names(play_scheduled(seed)), f"seed {seed}"


def test_schedules_have_the_same_answers_on_files(tmp_path: Path) -> None:
    for seed in range(12):
        clock = ManualClock()
        with closing(FileStorage(tmp_path / str(seed), clock=clock)) as storage:
            assert ScheduledSimulation(seed, storage, clock).play() == play_scheduled(seed), f"seed {seed}"


def without_names(answers: list[Any]) -> list[Any]:
    """Leave out the ids of scheduled jobs, which have the name of the queue and the time of the clock."""
    return [answer for answer in answers if answer[1] in ("look", "create schedule", "change schedule")]


def test_a_story_is_the_same_every_time() -> None:
    assert play(7) == play(7)
    assert play(7) != play(8)


def test_the_same_seeds_have_the_same_answers_on_postgres(database: str, postgres: PostgresStorage) -> None:
    clock = PostgresClock(database)
    for seed in ON_POSTGRES:
        answers = Simulation(seed, postgres, clock, queue=f"simulation {seed}").play()
        assert answers == play(seed), f"seed {seed} tells PostgreSQL and memory apart"


def test_the_same_seeds_have_the_same_answers_on_redis(redis_storage: RedisStorage) -> None:
    clock = RedisClock(redis_storage)
    for seed in ON_REDIS:
        answers = Simulation(seed, redis_storage, clock, queue=f"simulation {seed}").play()
        assert answers == play(seed), f"seed {seed} tells Redis and memory apart"


class Unfenced(Jobs):
    """Takes any lease of a running job for the valid one."""

    def held(self, lease: Any) -> Any:
        return self.processing.get(lease.key)


class Forgetful(Jobs):
    """Loses jobs that are given back."""

    def change(self, record: Any, event: Any = None, facts: Any = None, **fields: Any) -> None:
        super().change(record, event, facts, **fields)
        record.ready = False


class Generous(Jobs):
    """Does not count attempts that stalled."""

    def change(self, record: Any, event: Any = None, facts: Any = None, **fields: Any) -> None:
        if fields.get("state") == "failing" and record.stalled > 0:
            fields["attempts"] = record.attempts - 1
        super().change(record, event, facts, **fields)


class Undead(Jobs):
    """Lets what was completed run again."""

    def moved(self, record: Any, event: Any, values: Any) -> None:
        super().moved(record, event, values)
        if record.state == "completed":
            self._make_ready(record)


def storage_of(mutant: type[Jobs]) -> type[MemoryStorage]:
    """Make a storage that has such a model."""

    class Mutant(MemoryStorage):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.jobs = mutant()

    return Mutant


@pytest.mark.parametrize("mutant", [Unfenced, Forgetful, Generous, Undead])
def test_a_storage_that_breaks_the_protocol_is_found_and_its_seed_fails_again(mutant: type[Jobs]) -> None:
    with pytest.raises(AssertionError) as found:
        play_all(range(500), storage_of(mutant))
    note = found.value.__notes__[0]
    assert note.endswith(f"fails; again: python -m pgjq.testing --seed {note.split()[1]}")
    with pytest.raises(AssertionError):
        play(int(note.split()[1]), storage_of(mutant))


def test_a_reaper_that_comes_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    punctual = runs._is_late
    monkeypatch.setattr(runs, "_is_late", lambda r, now, patience: punctual(r, now + timedelta(seconds=1), patience))
    with pytest.raises(AssertionError, match="overdue"):
        play_all(range(500))


def test_a_storage_that_ticks_twice_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def tick(jobs: Any, plans: Any) -> Any:
        records = jobs.schedules.records
        return {p.schedule.name: schedules._apply(jobs, p, records[p.schedule.name]) for p in plans}

    monkeypatch.setattr(schedules, "tick", tick)
    with pytest.raises(AssertionError):
        play_schedules(100)


def test_a_tick_that_ignores_a_live_job_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "_is_live", lambda *_: False)
    with pytest.raises(AssertionError):
        play_schedules(300)
