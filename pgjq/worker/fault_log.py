"""Log storage errors of a worker or reaper: an outage is a few lines, not one per try.

| what happened | message | level |
|---|---|---|
| the storage cannot be reached | `storage unavailable, retrying: …` | ERROR |
| it still cannot: after 10 s, 20 s, 40 s, … | `storage unavailable for … s, … tries failed, retrying: …` | ERROR |
| everything that had failed works again | `storage available again after … s` | WARNING |
| any other error of a background activity, at the same pace | `… failed, trying again: …` | ERROR |

* There is one `FaultLog` per worker or reaper, and one `Activity` per background activity.
* The first error of a kind has its traceback, once in a worker's life. A kind is an error's class and its cause's.
* Intervals double up to ten minutes, and start over after a minute without errors.
* `error` callbacks get every error. While every queue has one, nothing is logged here.
"""

from __future__ import annotations

import threading
import time
from math import inf
from typing import TYPE_CHECKING, Final

from pgjq.errors import StorageUnavailableError

if TYPE_CHECKING:
    import logging
    from collections.abc import Callable

    Kind = tuple[type[BaseException], ...]

FIRST_INTERVAL: Final = 10.0
LONGEST_INTERVAL: Final = 600.0
# After this long without an error the next one is logged at once, and the intervals start over.
CALM: Final = 60.0


class FaultLog:
    """Decides which errors of one worker or reaper are logged; thread-safe.

    `publish` passes an error to the `error` callbacks and returns whether it should be logged as well.
    """

    def __init__(self, logger: logging.Logger, worker: str, publish: Callable[[Exception, str], bool]) -> None:
        self._logger = logger
        self._worker = worker
        self._publish = publish
        self._lock = threading.Lock()
        self._kinds: set[Kind] = set()  # Kinds whose traceback has been logged.
        self._outage = _Pace()
        self._since: float | None = None  # When the storage became unavailable.
        self._outage_logged = False  # Whether the outage was logged.
        self._failing: set[Activity] = set()
        self._others: dict[tuple[str, Kind], _Pace] = {}

    def activity(self, doing: str) -> Activity:
        """Return the reporter of one activity, such as "claiming"."""
        return Activity(self, doing)

    def failed(self, activity: Activity, error: Exception) -> None:
        """Record an error, and log it if it is due."""
        if not self._publish(error, activity.doing):
            return
        with self._lock:
            if isinstance(error, StorageUnavailableError):
                self._note_outage(activity, error)
            else:
                self._note_other(activity, error)

    def succeeded(self, activity: Activity) -> None:
        """Record that an activity works again after a failure."""
        with self._lock:
            self._failing.discard(activity)
            if self._failing or self._since is None:
                return
            seconds, self._since = time.monotonic() - self._since, None
            if self._outage_logged:
                self._outage_logged = False
                facts = {"worker": self._worker, "seconds": seconds, "count": self._outage.take_count()}
                self._logger.warning("storage available again after %.0f s", seconds, extra=facts)

    def _note_outage(self, activity: Activity, error: Exception) -> None:
        now = time.monotonic()
        self._failing.add(activity)
        if self._since is None:
            self._since = now
        is_due = self._outage.is_due(now)
        if not is_due and _kind(error) in self._kinds:
            return
        if self._outage_logged:
            tries = self._outage.count
            message = f"storage unavailable for {now - self._since:.0f} s, {tries} tries failed, retrying: %s"
        else:
            message = "storage unavailable, retrying: %s"
        self._outage_logged = True
        self._log(message, activity, error)

    def _note_other(self, activity: Activity, error: Exception) -> None:
        pace = self._others.setdefault((activity.doing, _kind(error)), _Pace())
        if pace.is_due(time.monotonic()):
            tries = pace.take_count()
            again = "" if tries == 1 else f" {tries} more times"
            self._log(f"{activity.doing} failed{again}, trying again: %s", activity, error)

    def _log(self, message: str, activity: Activity, error: Exception) -> None:
        kind = _kind(error)
        traceback = None if kind in self._kinds else error
        self._kinds.add(kind)
        facts = {"worker": self._worker, "activity": activity.doing, "pgjq_error": activity.doing}
        self._logger.error(message, error, exc_info=traceback, extra=facts)


class Activity:
    """Reports the errors and successes of one background activity."""

    def __init__(self, log: FaultLog, doing: str) -> None:
        self.doing = doing
        self._log = log
        self._is_failing = False

    def __call__(self, error: Exception) -> None:
        """Report an error; the activity continues."""
        self._is_failing = True
        self._log.failed(self, error)

    def succeeded(self) -> None:
        """Report a success; cheap unless the last try failed."""
        if self._is_failing:
            self._is_failing = False
            self._log.succeeded(self)

    def for_activity(self, doing: str) -> Activity:
        """Return the reporter of another activity of the same worker."""
        return self._log.activity(doing)


class _Pace:
    """Lets log lines through at growing intervals, and counts the suppressed ones."""

    def __init__(self) -> None:
        self.count = 0
        self._last = self._next = -inf
        self._interval = FIRST_INTERVAL

    def is_due(self, now: float) -> bool:
        if now - self._last > CALM:
            self._next, self._interval = -inf, FIRST_INTERVAL
        self._last = now
        self.count += 1
        if now < self._next:
            return False
        self._next = now + self._interval
        self._interval = min(2 * self._interval, LONGEST_INTERVAL)
        return True

    def take_count(self) -> int:
        count, self.count = self.count, 0
        return count


def _kind(error: BaseException) -> Kind:
    cause = error.__cause__
    return (type(error),) if cause is None else (type(error), type(cause))
