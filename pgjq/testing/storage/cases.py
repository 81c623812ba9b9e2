"""Decorator and base class of storage cases: written once, run in both modes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import pytest

from pgjq.testing.case_selection import Applicable
from pgjq.testing.storage.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgjq.blocking import Mode
    from pgjq.storage.base import Storage
    from pgjq.testing.clock import Clock

P = ParamSpec("P")


def case(
    coroutine: Callable[Concatenate[Any, Harness, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, Harness, P], None]:
    """Make a test from a coroutine; it runs in the mode of its harness."""

    @functools.wraps(coroutine)
    def test(self: Any, harness: Harness, *args: P.args, **kwargs: P.kwargs) -> None:
        harness.run(coroutine(self, harness, *args, **kwargs))

    return test


class Cases(Applicable):
    """The fixtures of every case: its mode, and its harness."""

    @pytest.fixture(params=["sync", "async"])
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        return request.param

    @pytest.fixture
    def harness(self, storage: Storage, clock: Clock, mode: Mode) -> Harness:
        return Harness(storage, clock, mode)
