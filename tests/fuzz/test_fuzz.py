"""A fixed sample of what `make fuzz` does: hostile values at every entry point, on every storage."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import pgjq
from tests.fuzz import entry_points as points
from tests.fuzz import values
from tests.fuzz.storages import STORAGES, opened

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pgjq.storage.base import Storage

CASES = 12
NUMBERS = count()
sampled = settings(
    max_examples=CASES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)


CASES_OF_STORAGES = [(storage, name) for storage in STORAGES for name in points.of_storage(storage)]


@pytest.fixture
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Storage]:
    if request.param == "postgres":
        yield request.getfixturevalue("postgres")
    elif request.param == "redis":
        yield request.getfixturevalue("redis_storage")
    else:
        with opened(request.param, str(tmp_path / "jobs")) as storage:
            yield storage


@pytest.mark.parametrize(("storage", "name"), CASES_OF_STORAGES, indirect=["storage"])
def test_hostile_values_are_refused_or_work(storage: Storage, name: str) -> None:
    feed, strategies = (points.ENTRY_POINTS | points.SERVER_ENTRY_POINTS)[name]

    @sampled
    @given(st.tuples(*strategies))
    def run(drawn: tuple[Any, ...]) -> None:
        feed(storage, *drawn)

    run()
    points.check_works(storage, next(NUMBERS))


@sampled
@given(values.arguments)
def test_the_command_line_never_shows_a_traceback(arguments: list[str]) -> None:
    points.command(pgjq.MemoryStorage(), arguments, "memory:")


@settings(sampled, max_examples=150)
@given(values.urls)
def test_urls_are_refused_without_their_passwords(url: str) -> None:
    points.open_url(url)


@settings(sampled, max_examples=300)
@given(points.resp)
def test_replies_of_redis_are_read_or_refused(pieces: list[bytes]) -> None:
    assert points.read_replies(pieces) <= b"".join(pieces).count(b"\n"), "a reply has a line of its own"


@settings(sampled, max_examples=40)
@given(lines=points.lines)
@example(lines=[b'330b153b ""\n'])
def test_damaged_journals_are_read_or_refused(lines: list[bytes], tmp_path_factory: pytest.TempPathFactory) -> None:
    points.read_journal(tmp_path_factory.mktemp("journal"), lines)


def test_a_defect_would_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object, **__: object) -> None:
        raise KeyError("a defect")

    monkeypatch.setattr(pgjq.Client, "get_status", crash)
    with pytest.raises(KeyError, match="a defect"):
        points.enqueue(pgjq.MemoryStorage(), "mail", "one", 1, {})
