"""Quality rules for endings; rows that break one go to the table `quarantine`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

# The job's number and the time of its end identify an ending: a job that was retried by hand has ended twice, at two
# points in time.
KEY: Final = ("seq", "finished_at")
_RULES: Final = (
    ("no end, or no queue: the row cannot be counted", "finished_at is null or queue is null or seq is null"),
    ("finished before it started", "finished_at < started_at"),
    ("started before it was created", "started_at < created_at"),
    ("finished before it was created", "finished_at < created_at"),
)
_TWICE: Final = "counted twice: the same ending came more than once"
_KNOWN: Final = "counted twice: this ending is in the lake already"


def count_sound(batch: DataFrame, before: DataFrame | None) -> dict[str, int] | None:
    """Count the endings of each day; None if a row breaks a rule."""
    wrong = F.count_if(F.expr(" or ".join(rule for _, rule in _RULES)))
    days = batch.groupBy("date").agg(
        F.count("*").alias("rows"), wrong.alias("wrong"), F.count_distinct(*map(F.col, KEY)).alias("endings")
    )
    looked = days.collect()
    sound = all(row["wrong"] == 0 and row["rows"] == row["endings"] for row in looked)
    if not sound or (before is not None and not batch.join(before, [*KEY], "left_semi").isEmpty()):
        return None
    return {str(row["date"]): row["rows"] for row in looked}


def judge(batch: DataFrame, before: DataFrame | None) -> DataFrame:
    """Add to each row as `violation` the first rule it breaks, or null.

    Of equal endings the first is kept.
    """
    broken = F.coalesce(*(F.when(F.expr(rule), F.lit(name)) for name, rule in _RULES))
    judged = batch.withColumn("violation", broken)
    alike = Window.partitionBy(*KEY, F.col("violation").isNull()).orderBy("queue", "id", "state")
    judged = judged.withColumn("nth", F.row_number().over(alike))
    judged = _mark(judged, F.col("nth") > 1, _TWICE).drop("nth")
    if before is None:
        return judged
    known = before.select(*KEY, F.lit(True).alias("known")).distinct()
    return _mark(judged.join(known, [*KEY], "left"), F.col("known"), _KNOWN).drop("known")


def _mark(rows: DataFrame, condition: Column, violation: str) -> DataFrame:
    return rows.withColumn("violation", F.coalesce("violation", F.when(condition, F.lit(violation))))
