"""Advice on the definitions of queues.

From completed runs of the last four weeks before the newest ending, and from the busiest hours:

* `visibility_timeout` is twice the 95th percentile of run time: the duration of a lease without heartbeats.
* `expire_in_seconds` is three times the 99th percentile, at least a minute, rounded up: a longer run hangs.
* `heartbeat_seconds` is a thirtieth of that, from 30 to 600: how soon a dead worker is noticed.
* `concurrency` is the number of simultaneous runs in a busy hour (99 of 100 hours had fewer), at 70 % load.

A definition disagrees if it does harm: it ends runs that would have completed, or a hung run keeps its slot for far too
long.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as F  # noqa: N812

from pgjq.definition import DEFAULTS
from pgjq.lease import LeasePolicy
from pgjq.spark.pipeline.jobs_table import seconds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

WINDOW_DAYS: Final = 28
BUSY_HOUR: Final = 0.99
LOAD: Final = 0.7
FEW: Final = 20  # Fewer completed runs are no evidence.
# An expiry is too long if it is this many times longer than advised; the default never is.
TOO_LONG: Final = 10
ACCURACY: Final = 10_000
ROUND: Final = (60, 90, 120, 180, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400, 172800, 604800)
LEASE: Final = LeasePolicy().lease or 0.0


def advise(jobs: DataFrame, metrics: DataFrame, queues: DataFrame) -> DataFrame:
    """Compare the definitions of queues with the endings of the last weeks, and with busy hours."""
    advised = _runs(jobs).join(_busy(metrics), "queue", "left").withColumns({
        "visibility_timeout": 2 * F.col("run_p95"),
        "expire_in_seconds": _rounded(F.greatest(F.lit(60.0), 3 * F.col("run_p99"))),
        "concurrency": F.greatest(F.lit(1), F.ceil(F.coalesce("at_once", F.lit(0.0)) / LOAD)).cast("int"),
    })  # fmt: skip
    advised = advised.withColumn("heartbeat_seconds", F.least(F.lit(600.0), F.greatest(F.lit(30.0), _thirtieth())))
    now = queues.select(
        "queue",
        F.col("expire_in_seconds").alias("current_expire_in_seconds"),
        F.col("heartbeat_seconds").alias("current_heartbeat_seconds"),
        F.col("ready").alias("backlog"),
        F.col("oldest_ready_age").alias("backlog_age"),
    )
    return advised.join(now, "queue", "left").withColumn("disagrees", _disagreements())


def _runs(jobs: DataFrame) -> DataFrame:
    run = F.when(F.col("state") == "completed", seconds("started_at", "finished_at"))
    measured = (
        jobs.withColumn("run", run)
        .groupBy("queue")
        .agg(
            F.count("*").alias("ended"),
            F.count("run").alias("completed"),
            F.count_if("expired").alias("expired"),
            F.percentile_approx("run", [0.5, 0.95, 0.99], ACCURACY).alias("runs"),
        )
    )
    shares = {f"run_{name}": F.col("runs")[n] for n, name in enumerate(("p50", "p95", "p99"))}
    return measured.where(F.col("completed") >= FEW).withColumns(shares).drop("runs")


def _busy(metrics: DataFrame) -> DataFrame:
    hours = metrics.groupBy("queue", "hour").agg((F.sum("busy_seconds") / 3600).alias("busy"))
    return hours.groupBy("queue").agg(F.percentile("busy", BUSY_HOUR).alias("at_once"))


def _thirtieth() -> Column:
    return F.ceil(F.col("expire_in_seconds") / 30).cast("double")


def _rounded(value: Column) -> Column:
    """Round up to a number that a person would choose."""
    steps = [F.when(value <= step, F.lit(float(step))) for step in ROUND]
    return F.coalesce(*steps, F.ceil(value / 86400) * 86400.0)


def _disagreements() -> Column:
    expires, lease = F.col("current_expire_in_seconds"), F.coalesce("current_heartbeat_seconds", F.lit(LEASE))
    too_early = (expires < F.col("run_p99") * 1.5) & (F.col("expired") > 0) | (expires < F.col("run_p99"))
    too_late = (expires > F.col("expire_in_seconds") * TOO_LONG) & (expires > DEFAULTS["expire_in_seconds"])
    unrenewed = lease < F.col("visibility_timeout")
    return F.array_compact(F.array(
        F.when(too_early, F.format_string(
            "expire_in_seconds is %s: %s runs were given up in four weeks, and 1 of 100 that complete takes over %s s;"
            " make it %s", _number(expires), F.col("expired"), _number(F.col("run_p99")), _number("expire_in_seconds"),
        )),
        F.when(too_late, F.format_string(
            "expire_in_seconds is %s: a run that hangs keeps its place that long, though 99 of 100 take under %s s;"
            " make it %s", _number(expires), _number(F.col("run_p99")), _number("expire_in_seconds"),
        )),
        F.when(unrenewed, F.format_string(
            "a lease is %s s: enough with heartbeats, but a worker that sends none needs visibility_timeout=%s",
            _number(lease), _number("visibility_timeout"),
        )),
    ))  # fmt: skip


def _number(value: Column | str) -> Column:
    """Format a number for people: whole if it is large."""
    value = F.col(value) if isinstance(value, str) else value
    large, some = 10, F.round(value, 1).cast("string")
    return F.coalesce(F.when(value >= large, F.ceil(value).cast("string")).otherwise(some), F.lit("?"))
