"""The table `jobs`: one row per ending, made from the rows of history.

The job's data is not copied: the payload is not read, and of the error the type and the beginning of the message are
kept. The task is the one that the job names; without one, it is empty, and only the queue distinguishes jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812  (the conventional name)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The columns read from history.
COLUMNS: Final = (
    "seq", "queue", "id", "state", "attempts", "max_attempts", "stalled", "stalled_on", "worker",
    "created_at", "started_at", "finished_at", "task", "error",
)  # fmt: skip
SCHEMA: Final = (
    "seq bigint, queue string, id string, task string, state string, attempts int, max_attempts int, stalled int,"
    " stalled_on array<string>, worker string, created_at timestamp, started_at timestamp, finished_at timestamp,"
    " error_type string, error_message string, expired boolean, date date"
)
LONGEST_TASK: Final = 100
LONGEST_MESSAGE: Final = 200
# The error of an attempt that expired (pgjq.lease, and the function reap).
TOO_LONG: Final = "the attempt took too long"


def endings(history: DataFrame) -> DataFrame:
    """Convert rows of history to rows of `jobs`."""
    error = F.from_json("error", "type string, message string")
    return history.withColumn("told", error).select(
        "seq", "queue", "id",
        F.substring(F.coalesce("task", F.lit("")), 1, LONGEST_TASK).alias("task"),
        "state", "attempts", "max_attempts", "stalled", "stalled_on", "worker",
        "created_at", "started_at", "finished_at",
        F.col("told.type").alias("error_type"),
        F.substring("told.message", 1, LONGEST_MESSAGE).alias("error_message"),
        F.coalesce((F.col("told.type") == "Stalled") & F.col("told.message").startswith(TOO_LONG), F.lit(False))
        .alias("expired"),
        F.to_date("finished_at").alias("date"),
    )  # fmt: skip


def seconds(begins: str, ends: str) -> Column:
    """Return the seconds between two points in time, to the microsecond."""
    return (F.unix_micros(F.col(ends)) - F.unix_micros(F.col(begins))) / 1e6
