"""Anomalies: hours and days in which a measure left its band.

Each task of a queue has a rhythm: a Tuesday at three in the morning differs from noon, and from a Sunday. So an hour is
compared with the same hour of other days of its kind, weekdays or weekends. The centre of the band is their median, and
its width is the median distance from it (MAD), which a few bad days do not move. The width has a lower bound, because
chance alone moves a count by its square root and a rate like a coin toss; and changes too small to matter are left out.
Neighbouring hours that left the band on the same side are one anomaly.

Days are looked at in the same way, for queues with too few endings in an hour: a day is compared with other weekdays or
weekends. A day of a queue in which an hour is an anomaly already is left out.

Throughput may leave its band on both sides, rates and latencies only upwards. Latencies are compared as logarithms,
because twice as slow is as far as twice as fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WIDTH: Final = 6.0  # The band has this many widths on each side.
SIGMA: Final = 1.4826  # Standard deviation of a normal distribution, in MADs.
LEAST_DAYS: Final = 5
LEAST_ENDED: Final = 20  # Of fewer, a rate or a percentile is no evidence.
COUNTS: Final = ("ended",)
RATES: Final = ("failure_rate", "stall_rate", "retry_rate")
LATENCIES: Final = ("wait_p95", "run_p95")
# The smallest change that matters: jobs an hour, a share, a factor and seconds.
LEAST_JOBS: Final = 20.0
LEAST_SHARE: Final = 0.03
LEAST_MORE: Final = 6.0  # The excess jobs that a rate must amount to.
LEAST_FACTOR: Final = 1.5
LEAST_SECONDS: Final = 0.5
LEAST_SPREAD: Final = 0.08  # Of a latency's logarithm; with few jobs, a percentile spreads by the root of their number.
_SERIES: Final = ("queue", "task", "measure")
_KIND: Final = (*_SERIES, "weekend", "clock")


def find_anomalies(metrics: DataFrame, days: DataFrame) -> DataFrame:
    """Find anomalies in the metrics by hour and by day; one row per stretch of them."""
    hourly = _evaluated(_find(metrics, "hour"))
    begins = F.to_timestamp("date").alias("hour")
    daily = _find(days.select("*", F.lit("").alias("task"), begins), "day")
    known = hourly.select(F.col("queue").alias("q"), F.col("begins").alias("b"), F.col("ends").alias("e"))
    overlaps = (F.col("queue") == F.col("q")) & (F.col("begins") < F.col("e")) & (F.col("ends") > F.col("b"))
    return hourly.unionByName(daily.join(known, overlaps, "left_anti"))


def _evaluated(found: DataFrame) -> DataFrame:
    """Return the rows of a frame as a frame of their own: its two uses would compute them twice."""
    session: Any = found.sparkSession
    rows: Any = found
    return session.createDataFrame(rows.toArrow(), found.schema)


def _find(metrics: DataFrame, grain: str) -> DataFrame:
    found = _merge(_outliers(_banded(_long(_every(metrics, grain)))), grain)
    return found.withColumn("grain", F.lit(grain))


def _every(metrics: DataFrame, grain: str) -> DataFrame:
    """Add hours or days without endings; drop the newest, which may not be over, and the oldest."""
    ends = metrics.agg(F.min("hour").alias("oldest"), F.max("hour").alias("newest"))
    hours = (
        metrics.groupBy("queue", "task").agg(F.min("hour").alias("since"))
        .crossJoin(ends)
        .withColumn("hour", F.explode(F.expr(f"sequence(since, newest, interval 1 {grain})")))
        .where("hour < newest and hour > oldest")
        .select("queue", "task", "hour")
    )  # fmt: skip
    return hours.join(metrics, ["queue", "task", "hour"], "left").withColumns({
        "ended": F.coalesce("ended", F.lit(0)),
        "clock": F.hour("hour"),
        "weekend": F.weekday("hour") >= 5,  # noqa: PLR2004  (Saturday)
    })  # fmt: skip


def _long(hours: DataFrame) -> DataFrame:
    """Return one row per measure; measures of too few endings are left out."""
    names = [*COUNTS, *RATES, *LATENCIES]
    cells = hours.withColumn("jobs", F.col("ended")).unpivot(
        ["queue", "task", "hour", "clock", "weekend", "jobs"],
        [F.col(name).cast("double").alias(name) for name in names],
        "measure",
        "value",
    )
    enough = F.col("measure").isin(*COUNTS) | (F.col("jobs") >= LEAST_ENDED)
    latency = F.col("measure").isin(*LATENCIES)
    scaled = F.when(latency, F.ln(F.greatest("value", F.lit(0.001)))).otherwise(F.col("value"))
    return cells.where(enough & F.col("value").isNotNull()).withColumn("scaled", scaled)


def _banded(cells: DataFrame) -> DataFrame:
    """Add the median of its kind to every cell, and the typical distance from it."""
    kind, series = Window.partitionBy(*_KIND), Window.partitionBy(*_SERIES)
    looked = cells.withColumns({"middle": F.median("scaled").over(kind), "days": F.count("*").over(kind)})
    distance = F.abs(F.col("scaled") - F.col("middle"))
    # A rate falls back to the mean of its whole series where most hours of the kind have none at all.
    looked = looked.withColumns({"mad": F.median(distance).over(kind), "mean": F.avg("value").over(series)})
    usual = F.greatest(F.col("middle"), F.col("mean"), F.lit(0.002))
    chance = (
        F.when(F.col("measure").isin(*COUNTS), F.sqrt(F.greatest("middle", F.lit(1.0))))
        .when(F.col("measure").isin(*RATES), F.sqrt(usual * (1 - F.least(usual, F.lit(0.99))) / F.col("jobs")))
        .otherwise(F.greatest(F.lit(LEAST_SPREAD), 1 / F.sqrt("jobs")))
    )
    return looked.withColumn("width", F.greatest(F.col("mad") * SIGMA, chance))


def _outliers(cells: DataFrame) -> DataFrame:
    """Keep cells that are outside of their band by enough to matter."""
    latency = F.col("measure").isin(*LATENCIES)
    out = cells.withColumns({
        "score": (F.col("scaled") - F.col("middle")) / F.col("width"),
        "usual": F.when(latency, F.exp("middle")).otherwise(F.col("middle")),
        "low": F.col("middle") - WIDTH * F.col("width"),
        "high": F.col("middle") + WIDTH * F.col("width"),
    }).withColumns({
        "low": F.when(latency, F.exp("low")).otherwise(F.greatest("low", F.lit(0.0))),
        "high": F.when(latency, F.exp("high")).otherwise(F.col("high")),
        "side": F.when(F.col("score") > 0, "above").otherwise("below"),
    })  # fmt: skip
    change = F.abs(F.col("value") - F.col("usual"))
    matters = (
        F.when(F.col("measure").isin(*COUNTS), change >= F.greatest(F.lit(LEAST_JOBS), F.col("usual") * 0.3))
        .when(latency, (F.col("value") >= F.col("usual") * LEAST_FACTOR) & (change >= LEAST_SECONDS))
        .otherwise((change >= LEAST_SHARE) & (change * F.col("jobs") >= LEAST_MORE))
    )
    side = F.col("measure").isin(*COUNTS) | (F.col("score") > 0)
    return out.where((F.abs("score") > WIDTH) & (F.col("days") >= LEAST_DAYS) & matters & side)


def _merge(cells: DataFrame, grain: str) -> DataFrame:
    """Merge neighbouring hours or days into one row, with the numbers of the worst."""
    step = F.expr(f"interval 1 {grain}")
    keys = (*_SERIES, "side")
    ordered = Window.partitionBy(*keys).orderBy("hour")
    gap = F.col("hour") > F.lag("hour").over(ordered) + step
    numbered = cells.withColumn("stretch", F.sum(F.coalesce(gap, F.lit(True)).cast("int")).over(ordered))
    worst = {name: F.max_by(name, F.abs("score")).alias(name) for name in ("value", "usual", "low", "high", "score")}
    return numbered.groupBy(*keys, "stretch").agg(
        F.min("hour").alias("begins"),
        (F.max("hour") + step).alias("ends"),
        F.count("*").cast("int").alias("hours"),
        *worst.values(),
    ).drop("stretch")  # fmt: skip
