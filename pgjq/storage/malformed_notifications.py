"""Notifications that cannot be read: any login can send them, so they cost one line in the log each minute.

The first one is logged at once, with what was wrong; those of the next minute are counted, and the first one after it
is logged with their number. Neither the payload nor a traceback is logged: the sender chooses the one, and the other is
the same each time.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

EVERY_SECONDS: Final = 60.0

logger = logging.getLogger("pgjq")


class MalformedLog:
    """Counts malformed notifications of one listener, and logs them. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._due = 0.0

    def note(self, channel: str, error: Exception) -> None:
        """Count a notification, and log all that were counted unless that was done less than a minute ago."""
        with self._lock:
            self._count += 1
            if time.monotonic() < self._due:
                return
            count, self._count = self._count, 0
            self._due = time.monotonic() + EVERY_SECONDS
        logger.warning(
            "malformed notifications ignored count=%d channel=%s last=%s",
            *(count, channel, type(error).__name__),
            extra={"count": count, "channel": channel},
        )
