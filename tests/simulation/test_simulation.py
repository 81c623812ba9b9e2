"""The lease protocol in seeded stories: thousands in memory, some on other storages, and mutants found out."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import MemoryStorage
from pgjq.storage import memory
from pgjq.testing import PostgresClock, RedisClock
from pgjq.testing.simulation import Story, play, play_all

if TYPE_CHECKING:
    from pgjq import PostgresStorage, RedisStorage

STORIES = 10_000
ON_POSTGRES = range(25)
ON_REDIS = range(40)


def test_ten_thousand_stories_keep_every_invariant() -> None:
    assert play_all(range(STORIES)) == STORIES


def test_a_story_is_the_same_every_time() -> None:
    assert play(7) == play(7)
    assert play(7) != play(8)


def test_the_same_seeds_have_the_same_answers_on_postgres(database: str, postgres: PostgresStorage) -> None:
    clock = PostgresClock(database)
    for seed in ON_POSTGRES:
        answers = Story(seed, postgres, clock, queue=f"story {seed}").play()
        assert answers == play(seed), f"seed {seed} tells PostgreSQL and memory apart"


def test_the_same_seeds_have_the_same_answers_on_redis(redis_storage: RedisStorage) -> None:
    clock = RedisClock(redis_storage)
    for seed in ON_REDIS:
        answers = Story(seed, redis_storage, clock, queue=f"story {seed}").play()
        assert answers == play(seed), f"seed {seed} tells Redis and memory apart"


class Unfenced(MemoryStorage):
    """Takes any lease of a running job for the valid one."""

    def held(self, lease: Any) -> Any:
        return self.processing.get(lease.key)


class Forgetful(MemoryStorage):
    """Loses jobs that are given back."""

    def give_back(self, record: Any, state: Any, delay: float) -> None:
        super().give_back(record, state, delay)
        record.ready = False


class Generous(MemoryStorage):
    """Does not count attempts that stalled."""

    def give_back(self, record: Any, state: Any, delay: float) -> None:
        record.attempts -= record.stalled > 0
        super().give_back(record, state, delay)


class Undead(MemoryStorage):
    """Lets what was completed run again."""

    def end(self, record: Any, state: Any, result: bytes | None = None, error: Any = None) -> None:
        super().end(record, state, result, error)
        if state == "completed":
            self.place(record, self.clock())


@pytest.mark.parametrize("mutant", [Unfenced, Forgetful, Generous, Undead])
def test_a_storage_that_breaks_the_protocol_is_found_and_its_seed_fails_again(mutant: type[MemoryStorage]) -> None:
    with pytest.raises(AssertionError) as found:
        play_all(range(500), mutant)
    note = found.value.__notes__[0]
    assert note.endswith(f"fails; again: python -m pgjq.testing --seed {note.split()[1]}")
    with pytest.raises(AssertionError):
        play(int(note.split()[1]), mutant)


def test_a_reaper_that_comes_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    punctual = memory._is_late
    monkeypatch.setattr(memory, "_is_late", lambda r, now, patience: punctual(r, now + timedelta(seconds=1), patience))
    with pytest.raises(AssertionError, match="overdue"):
        play_all(range(500))
