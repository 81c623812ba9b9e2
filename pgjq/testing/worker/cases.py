"""Decorator and base class of worker cases: written once, run in both modes and all styles."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, ClassVar, Concatenate, ParamSpec

import pytest

from pgjq.testing.case_selection import Applicable
from pgjq.testing.worker.harness import Harness

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from pgjq.storage.base import Storage
    from pgjq.testing.worker.harness import Mode, Style

P = ParamSpec("P")


def case(
    coroutine: Callable[Concatenate[Any, Harness, P], Coroutine[Any, Any, None]],
) -> Callable[Concatenate[Any, Harness, P], None]:
    """Make a test from a coroutine; it runs in the mode of its harness."""

    @functools.wraps(coroutine)
    def test(self: Any, harness: Harness, *args: P.args, **kwargs: P.kwargs) -> None:
        harness.run(coroutine(self, harness, *args, **kwargs))

    return test


class WorkerCases(Applicable):
    """The fixtures of every case. Suites override `storage`; shared ones `reopen` and `source`.

    `falls_asleep_after` is how many seconds an idle worker of this storage looks for jobs before it sleeps.
    """

    falls_asleep_after: ClassVar[float] = Harness.falls_asleep_after

    @pytest.fixture(params=["sync", "async"])
    def mode(self, request: pytest.FixtureRequest) -> Mode:
        """Whether the case runs with Queue and Client, or with AsyncQueue and AsyncClient."""
        return request.param

    @pytest.fixture(params=["function", "coroutine", "callback"])
    def style(self, request: pytest.FixtureRequest) -> Style:
        """How the handler is written, for cases in which that matters."""
        return request.param

    @pytest.fixture
    def reopen(self, storage: Storage) -> Callable[[], Storage]:
        """Return a function that opens the same data again; by default it returns the same object."""
        return lambda: storage

    @pytest.fixture
    def source(self) -> str | None:
        """Return a Python expression that opens the data in another process, after `import pgjq`."""
        return None

    @pytest.fixture
    def connect(self) -> Callable[[], Any]:
        """Return a function that opens a caller connection, if the storage has transactions."""
        raise NotImplementedError

    @pytest.fixture
    def harness(self, storage: Storage, mode: Mode, reopen: Callable[[], Storage], source: str | None) -> Harness:
        """Return the harness of the case."""
        harness = Harness(storage, mode, reopen, source)
        harness.falls_asleep_after = self.falls_asleep_after
        return harness
