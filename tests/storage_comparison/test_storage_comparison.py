"""Every storage answers alike: random scenarios, played on all of them at once, and those that once told them apart."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from pgjq import outcome
from pgjq.storage.model.jobs import Jobs
from pgjq.testing import clock
from tests.storage_comparison import steps
from tests.storage_comparison.compare import play
from tests.storage_comparison.driver import differences
from tests.storage_comparison.generate import scenario
from tests.storage_comparison.regressions import FOUND
from tests.storage_comparison.shrink import code, shrink
from tests.storage_comparison.subject import FileSubject, MemorySubject, PostgresSubject, RedisSubject, Subject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT_ONCE = 10
STORIES = 100


@pytest.fixture
def subjects(database: str, redis_url: str, valkey_url: str, tmp_path: Path) -> Iterator[list[Subject]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(MemorySubject()),
            stack.enter_context(FileSubject(tmp_path)),
            stack.enter_context(PostgresSubject(database)),
            stack.enter_context(RedisSubject("redis", redis_url)),
            stack.enter_context(RedisSubject("valkey", valkey_url)),
        ]


@pytest.mark.parametrize("first", range(0, STORIES, AT_ONCE))
def test_random_scenarios_have_the_same_results_on_every_storage(subjects: list[Subject], first: int) -> None:
    for seed in range(first, first + AT_ONCE):
        report = differences(scenario(seed), subjects, seed)
        assert report is None, report


@pytest.mark.parametrize("name", FOUND)
def test_a_fixed_scenario_has_the_same_results(subjects: list[Subject], name: str) -> None:
    report = differences(FOUND[name], subjects)
    assert report is None, report


def test_a_seed_tells_the_same_story_every_time() -> None:
    assert scenario(7) == scenario(7)
    assert scenario(7) != scenario(8)


class Forgetful(Jobs):
    """Loses jobs that are given back."""

    def change(self, record: Any, event: Any = None, facts: Any = None, **fields: Any) -> None:
        super().change(record, event, facts, **fields)
        record.ready = False


class ForgetfulSubject(MemorySubject):
    name = "forgetful"

    def prepare(self) -> None:
        super().prepare()
        self.storage.jobs = Forgetful()


@pytest.fixture
def suspects() -> Iterator[list[Subject]]:
    with MemorySubject() as memory, ForgetfulSubject() as forgetful:
        yield [memory, forgetful]


def test_a_storage_that_differs_is_found_and_its_scenario_is_shrunk(suspects: list[Subject]) -> None:
    report = next(report for report in map(scenario, range(100)) if play(report, suspects) is not None)
    shrunk = shrink(report, lambda shorter: play(shorter, suspects) is not None)
    assert len(shrunk.steps) <= 6  # Enqueue, claim, wait until it is late, reap, claim again.
    assert eval(code(shrunk), vars(steps) | vars(outcome) | vars(clock) | globals()) == shrunk  # noqa: S307
