"""Supervised background threads and tasks, and their health.

* A thread calls its body until the body returns. An exception that leaves the body is unexpected: the thread logs it
  with its traceback and calls the body again after a pause. So no thread ends silently.
* A repeated exception is logged once a minute.
* `health()` lists the activities that should be running in this process. An activity that ended normally is no longer
  listed. A forked child starts with none, because threads stay with the parent.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

PAUSE_SECONDS: Final = 0.5
LOG_AGAIN_SECONDS: Final = 60.0

_running: set[Activity] = set()


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one background thread or task; times are `time.monotonic()` values.

    One that is not active again by `due` hangs.
    """

    name: str
    alive: bool
    last_error: str | None
    last_activity: float
    due: float = inf


def health() -> list[Health]:
    """Return the state of every background thread and task that should run in this process."""
    return [Health(a.name, a.is_alive(), a.last_error, a.last_activity, a.due) for a in tuple(_running)]


class Activity:
    """Health record of one background thread or task; `is_alive` returns whether it runs."""

    def __init__(self, name: str, is_alive: Callable[[], bool]) -> None:
        self.name = name
        self.is_alive = is_alive
        self.last_error: str | None = None
        self.last_activity = time.monotonic()
        self.due = inf
        self._logged_at = -inf

    def begin(self) -> None:
        """List this activity in `health()` from now on."""
        _running.add(self)

    def end(self) -> None:
        """Remove this activity from `health()`."""
        _running.discard(self)

    def touch(self, within: float = inf) -> None:
        """Record that the activity is making progress, and will again within so many seconds."""
        self.last_activity = time.monotonic()
        self.due = self.last_activity + within

    def note(self, error: BaseException) -> bool:
        """Record a handled error; return whether it differs from the previous one."""
        last, self.last_error = self.last_error, f"{type(error).__name__}: {error}"
        return last != self.last_error

    def report(self, error: BaseException) -> None:
        """Record an unexpected error; log it unless the same one was logged within a minute."""
        now = time.monotonic()
        if self.note(error) or now >= self._logged_at + LOG_AGAIN_SECONDS:
            self._logged_at = now
            message = "background thread failed, starting it again: %s"
            logging.getLogger("pgjq").error(message, self.name, exc_info=error, extra={"background": self.name})


class BackgroundThread(Activity):
    """A daemon thread that calls `body` until it returns; `wait` pauses before another call."""

    def __init__(self, name: str, body: Callable[[], object], wait: Callable[[float], object] = time.sleep) -> None:
        self._body = body
        self._wait = wait
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        super().__init__(name, self._thread.is_alive)

    def start(self) -> None:
        """Start the thread."""
        self.begin()
        self._thread.start()

    def join(self, timeout: float | None = None) -> None:
        """Wait until the thread has ended; return at once on the thread itself or before `start`."""
        if self._thread.is_alive() and not self.is_current():
            self._thread.join(timeout)

    def is_current(self) -> bool:
        """Return whether the caller runs on this thread."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        while True:
            try:
                self._body()
                break
            except BaseException as error:  # noqa: BLE001  (SystemExit would end this thread and nothing else)
                self.report(error)
                self._wait(PAUSE_SECONDS)
        self.end()


os.register_at_fork(after_in_child=_running.clear)
