"""The table `jobs`: one row for each ending of a job, made from the rows of history.

What a job carried stays behind: of the payload only the task is kept, of the error the type and the beginning of the
message. A task is what the payload, if it is JSON, calls `task`; without it, it is empty, and the queue is all there is
to tell jobs apart by.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  (everybody's name for it)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# What is read of history.
COLUMNS: Final = (
    "seq", "queue", "id", "state", "attempts", "max_attempts", "stalled", "stalled_on", "worker",
    "created_at", "started_at", "finished_at", "payload", "error",
)  # fmt: skip
SCHEMA: Final = (
    "seq bigint, queue string, id string, task string, state string, attempts int, max_attempts int, stalled int,"
    " stalled_on array<string>, worker string, created_at timestamp, started_at timestamp, finished_at timestamp,"
    " error_type string, error_message string, expired boolean, date date"
)
LONGEST_TASK: Final = 100
LONGEST_MESSAGE: Final = 200
# How a reaper describes the end of an attempt that took too long (pgjq.lease, and the function reap).
TOO_LONG: Final = "the attempt took too long"


def endings(history: DataFrame) -> DataFrame:
    """Make rows of `jobs` from rows of history."""
    error = F.from_json("error", "type string, message string")
    return history.withColumn("told", error).select(
        "seq", "queue", "id",
        F.substring(F.coalesce(F.get_json_object("payload", "$.task"), F.lit("")), 1, LONGEST_TASK).alias("task"),
        "state", "attempts", "max_attempts", "stalled", "stalled_on", "worker",
        "created_at", "started_at", "finished_at",
        F.col("told.type").alias("error_type"),
        F.substring("told.message", 1, LONGEST_MESSAGE).alias("error_message"),
        F.coalesce((F.col("told.type") == "Stalled") & F.col("told.message").startswith(TOO_LONG), F.lit(False))
        .alias("expired"),
        F.to_date("finished_at").alias("date"),
    )  # fmt: skip


def seconds(begins: str, ends: str) -> Column:
    """Return how many seconds lie between two points in time, to the microsecond."""
    return (F.unix_micros(F.col(ends)) - F.unix_micros(F.col(begins))) / 1e6
