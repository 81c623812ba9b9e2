"""Every storage answers alike: random stories, played on all of them at once, and those that once told them apart."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import outcome
from pgjq.storage.model.jobs import Jobs
from tests.stories import steps
from tests.stories.compare import play
from tests.stories.driver import differences
from tests.stories.found import FOUND
from tests.stories.generate import story
from tests.stories.player import FilePlayer, MemoryPlayer, Player, PostgresPlayer, RedisPlayer
from tests.stories.shrink import code, shrink

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT_ONCE = 10
STORIES = 100


@pytest.fixture
def players(database: str, redis_url: str, valkey_url: str, tmp_path: Path) -> Iterator[list[Player]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(MemoryPlayer()),
            stack.enter_context(FilePlayer(tmp_path)),
            stack.enter_context(PostgresPlayer(database)),
            stack.enter_context(RedisPlayer("redis", redis_url)),
            stack.enter_context(RedisPlayer("valkey", valkey_url)),
        ]


@pytest.mark.parametrize("first", range(0, STORIES, AT_ONCE))
def test_random_stories_have_the_same_answers_on_every_storage(players: list[Player], first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        told = differences(story(seed), players, seed)
        assert told is None, told


@pytest.mark.parametrize("name", FOUND)
def test_a_story_that_was_mended_has_the_same_answers(players: list[Player], name: str) -> None:
    told = differences(FOUND[name], players)
    assert told is None, told


def test_a_seed_tells_the_same_story_every_time() -> None:
    assert story(7) == story(7)
    assert story(7) != story(8)


class Forgetful(Jobs):
    """Loses jobs that are given back."""

    def change(self, record: Any, event: Any = None, facts: Any = None, **fields: Any) -> None:
        super().change(record, event, facts, **fields)
        record.ready = False


class ForgetfulPlayer(MemoryPlayer):
    name = "forgetful"

    def prepare(self) -> None:
        super().prepare()
        self.storage.jobs = Forgetful()


@pytest.fixture
def suspects() -> Iterator[list[Player]]:
    with MemoryPlayer() as memory, ForgetfulPlayer() as forgetful:
        yield [memory, forgetful]


def test_a_storage_that_differs_is_found_and_its_story_is_shrunk(suspects: list[Player]) -> None:
    told = next(told for told in map(story, range(100)) if play(told, suspects) is not None)
    shrunk = shrink(told, lambda shorter: play(shorter, suspects) is not None)
    assert len(shrunk.steps) <= 6  # Enqueue, claim, wait until it is late, reap, claim again.
    assert eval(code(shrunk), vars(steps) | vars(outcome) | globals()) == shrunk  # noqa: S307
