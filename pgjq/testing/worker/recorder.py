"""Handlers that record runs: the jobs, their order, and the simultaneous runs of one key."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple

from pgjq.testing.worker.harness import LIMIT, echo

if TYPE_CHECKING:
    from collections.abc import Callable


class Started(NamedTuple):
    """One run: its job, the attempt, and when it began (`time.monotonic`)."""

    id: str
    attempt: int
    at: float


class Recorder:
    """A handler that records each run before `body`. A job's key is its id up to a hyphen."""

    def __init__(self, body: Callable[[Any], Any] = echo) -> None:
        self.runs: list[Started] = []
        self.most: Counter[str] = Counter()  # The most runs of a key at the same time.
        self._now: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._body = body

    def __call__(self, job: Any) -> Any:
        """Handle a job."""
        key = key_of(job.id)
        with self._lock:
            self.runs.append(Started(job.id, job.attempts, time.monotonic()))
            self._now[key] += 1
            self.most[key] = max(self.most[key], self._now[key])
        try:
            return self._body(job)
        finally:
            with self._lock:
                self._now[key] -= 1

    @property
    def ids(self) -> list[str]:
        """The ids of the runs so far, in the order of their starts."""
        with self._lock:
            return [run.id for run in self.runs]

    @property
    def attempts(self) -> list[int]:
        """The attempts of the runs so far."""
        with self._lock:
            return [run.attempt for run in self.runs]


class Gate:
    """A handler that returns once the gate is open; `held` names the jobs that wait, or all."""

    def __init__(self, *held: str) -> None:
        self._held = held
        self._opened = threading.Event()

    def __call__(self, job: Any) -> Any:
        """Handle a job."""
        if not self._held or job.id in self._held:
            assert self._opened.wait(2 * LIMIT), "the case did not open the gate"
        return job.payload

    def open(self) -> None:
        """Release all handlers."""
        self._opened.set()


def key_of(job_id: str) -> str:
    """Return the key of a job by its id."""
    return job_id.partition("-")[0]


def until_aborted(job: Any) -> None:
    """Handle a job by waiting until its run is aborted."""
    job.signal.wait(2 * LIMIT)
