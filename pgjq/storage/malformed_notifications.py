"""Log malformed notifications, which any login can send, at most once a minute.

The first one is logged at once, with the error's type; those of the next minute are counted, and the first one after it
is logged with the count. The payload is not logged, because its sender chooses it, nor the traceback, which is always
the same.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

EVERY_SECONDS: Final = 60.0

logger = logging.getLogger("pgjq")


class MalformedLog:
    """Counts malformed notifications of one listener, and logs them. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._due = 0.0

    def note(self, channel: str, error: Exception) -> None:
        """Count a notification, and log the count unless that was done less than a minute ago."""
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
