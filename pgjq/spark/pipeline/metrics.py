"""Metrics: endings by queue, task and hour, by queue and day; failures and workers by day.

An ending counts for the hour, in UTC, in which the job ended. The run time is that of the last run, and counts if it
completed. The wait, from the enqueue to the start, counts only for jobs with one attempt: for others it would include
earlier runs. Percentiles are exact, interpolated as by PostgreSQL's percentile_cont.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from pgjq.spark.pipeline.jobs_table import seconds

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pyspark.sql import Column, DataFrame

SHARES: Final = {"p50": 0.5, "p95": 0.95, "p99": 0.99}


def hourly(jobs: DataFrame) -> DataFrame:
    """Measure every queue, task and hour."""
    return measure(jobs.withColumn("hour", F.date_trunc("hour", "finished_at")), "queue", "task", "hour", "date")


def daily(jobs: DataFrame) -> DataFrame:
    """Measure every queue and day."""
    return measure(jobs, "queue", "date")


def measure(jobs: DataFrame, *keys: str) -> DataFrame:
    """Measure the endings of each group."""
    timed = jobs.withColumns({
        "run": F.when(F.col("state") == "completed", seconds("started_at", "finished_at")),
        "wait": F.when(F.col("attempts") == 1, seconds("created_at", "started_at")),
        "busy": seconds("started_at", "finished_at"),
    })  # fmt: skip
    measured = timed.groupBy(*keys).agg(
        F.count("*").alias("ended"),
        *(F.count_if(F.col("state") == state).alias(state) for state in ("completed", "failed", "cancelled")),
        F.avg("attempts").alias("attempts"),
        _rate(F.col("attempts") > 1).alias("retry_rate"),
        _rate(F.col("stalled") > 0).alias("stall_rate"),
        _rate(F.col("state") == "failed").alias("failure_rate"),
        _rate(F.col("expired")).alias("expiry_rate"),
        F.percentile("wait", [*SHARES.values()]).alias("waits"),
        F.percentile("run", [*SHARES.values()]).alias("runs"),
        F.max("wait").alias("backlog_age"),
        F.coalesce(F.sum("busy"), F.lit(0.0)).alias("busy_seconds"),
        F.coalesce(F.sum("wait"), F.lit(0.0)).alias("wait_seconds"),
    )
    spread = measured.withColumns(
        {f"{name}_{share}": F.col(f"{name}s")[n] for name in ("wait", "run") for n, share in enumerate(SHARES)}
    ).drop("waits", "runs")
    return spread.join(_count_workers(jobs, *keys), [*keys], "left")


def failures(jobs: DataFrame) -> DataFrame:
    """Count failures by day, queue, task and type of error."""
    return (
        jobs.where("state = 'failed'")
        .groupBy("date", "queue", "task", "error_type")
        .agg(F.count("*").alias("failed"), F.max("error_message").alias("example"))
    )


def workers(jobs: DataFrame) -> DataFrame:
    """Count endings by day, queue and worker, and stalls for the worker they happened on."""
    ended = jobs.where("worker is not null").select(
        "date", "queue", "worker", F.lit(1).alias("ended"), F.lit(0).alias("s")
    )
    stalls = jobs.select("date", "queue", F.explode("stalled_on").alias("worker"), F.lit(0), F.lit(1))
    return (
        ended.union(stalls)
        .groupBy("date", "queue", "worker")
        .agg(F.sum("ended").alias("ended"), F.sum("s").alias("stalls"))
    )


def _rate(condition: Column) -> Column:
    return F.avg(condition.cast("double"))


def _count_workers(jobs: DataFrame, *keys: str) -> DataFrame:
    """Count workers, and the ratio of the busiest one's endings to the average: 1 is even."""
    by_worker = jobs.where("worker is not null").groupBy(*keys, "worker").count()
    return by_worker.groupBy(*keys).agg(
        F.count("*").alias("workers"), (F.max("count") / F.avg("count")).alias("worker_skew")
    )


TABLES: Final[Mapping[str, Callable[[DataFrame], DataFrame]]] = {
    "metrics": hourly,
    "days": daily,
    "errors": failures,
    "workers": workers,
}
