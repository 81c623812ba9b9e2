"""Run a stream until it has read all available data."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyspark.errors import StreamingQueryException

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql.streaming.query import StreamingQuery

STARTS: Final = 5
# Spark gives the Python process that reads a stream ten seconds to start, and no setting changes that. On a busy
# machine that is sometimes too short. Nothing has been read by then, so the query can be started again.
TOO_SLOW: Final = "Python worker failed to connect back"
_log = logging.getLogger("pgjq.spark")


def run_available(start: Callable[[], StreamingQuery]) -> None:
    """Run an `availableNow` query to its end; start it again if Spark's start-up timed out."""
    for starts in range(1, STARTS + 1):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if TOO_SLOW not in str(error) or starts == STARTS:
                raise
            _log.warning("Spark's Python process did not start within ten seconds: starting the stream again")
        else:
            return
