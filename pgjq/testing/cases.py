"""Decorator and base class of storage cases: written once, run in both modes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import pytest

from pgjq.testing.applicable import Applicable
from pgjq.testing.bench import Bench

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgjq.blocking import Mode
    from pgjq.storage.base import Storage
    from pgjq.testing.clock import Clock

P = ParamSpec("P")


def case(
    coroutine: Callable[Concatenate[Any, Bench, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, Bench, P], None]:
    """Make a test from a coroutine; it runs in the mode of its bench."""

    @functools.wraps(coroutine)
    def test(self: Any, bench: Bench, *args: P.args, **kwargs: P.kwargs) -> None:
        bench.run(coroutine(self, bench, *args, **kwargs))

    return test


class Cases(Applicable):
    """The fixtures of every case: its mode, and its bench."""

    @pytest.fixture(params=["sync", "async"])
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        return request.param

    @pytest.fixture
    def bench(self, storage: Storage, clock: Clock, mode: Mode) -> Bench:
        return Bench(storage, clock, mode)
