"""One run: read new endings into the lake, measure their days, advise, find anomalies.

Each step writes new files and is published as a whole (`lake`). The next run continues a killed one: it measures
endings that were read but not measured. Advice is made anew every time, because definitions change without an ending.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol

from pgjq.spark import register
from pgjq.spark.pipeline.advice import WINDOW_DAYS, advise
from pgjq.spark.pipeline.anomalies import find_anomalies
from pgjq.spark.pipeline.compaction import compact, forget
from pgjq.spark.pipeline.delta import publish
from pgjq.spark.pipeline.extract import Source, extract, read_jobs
from pgjq.spark.pipeline.lake import Lake
from pgjq.spark.pipeline.metrics import TABLES
from pgjq.storage.postgres.oneshot import oneshot_connection

if TYPE_CHECKING:
    from collections.abc import Collection, Generator

    from pyspark.sql import DataFrame, SparkSession

# Days and hours are UTC, and files mark their times as UTC, which Spark's older format cannot. Percentiles of many
# small groups are computed in memory: beyond 128 groups Spark would sort the rows first, at twice the cost.
_SETTINGS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "200000",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
}


class Listener(Protocol):
    """Receives the progress of a run."""

    def begin(self, step: str) -> None:
        """Receive the start of a step."""
        ...

    def count(self, rows: int) -> None:
        """Receive the number of further endings read."""
        ...


class NoProgress:
    """Ignores the progress."""

    def begin(self, step: str) -> None:
        """Do nothing."""

    def count(self, rows: int) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Summary:
    """The result of a run: endings read, days measured, and the content of the lake."""

    read: int
    days_measured: int
    jobs: int
    days: int
    disagreements: int
    anomalies: int
    quarantined: int


def run(
    spark: SparkSession,
    source: Source,
    lake: str,
    listener: Listener | None = None,
    *,
    keep: timedelta | None = None,
    delta: str | None = None,
) -> Summary:
    """Run the pipeline from a database to a lake; days and hours are UTC in any session.

    With `keep`, days that ended longer ago leave the lake. `delta` is a path or URL for the same tables as Delta Lake.
    """
    told = listener or NoProgress()
    check_source(source)
    with Lake.writing(lake) as place, settled(spark):
        register(spark)
        told.begin("extract")
        read = extract(spark, source, place, told.count)
        touched = place.manifest.unmeasured()
        queues = spark.read.format("pgjq").options(**source.options(), view="queues").load()
        _measure(spark, place, touched, queues, told)
        if keep is not None:
            forget(place, (datetime.now(UTC) - keep).date())
        if delta is not None:
            told.begin("delta")
            publish(place, delta)
        compact(spark, place, told.begin)
        return _summarise(spark, place, read, len(touched))


def check_source(source: Source) -> None:
    """Check that the database and its schema are usable, before anything is created for it."""
    with oneshot_connection(source.url, source.schema):
        pass


def read_table(spark: SparkSession, lake: Lake, table: str, dates: Collection[str] | None = None) -> DataFrame:
    """Read the published part of a table other than `jobs`."""
    paths = [lake.path(directory) for directory in lake.manifest.directories(table, dates)]
    return spark.read.option("basePath", lake.path(table)).parquet(*paths).drop("run")


def _measure(spark: SparkSession, lake: Lake, dates: list[str], queues: DataFrame, told: Listener) -> None:
    if not lake.manifest.batches:
        return
    name = f"run={lake.manifest.runs + 1}"
    for table, measure in TABLES.items() if dates else ():
        told.begin(table)
        parts = measure(read_jobs(spark, lake, dates)).repartition("date")
        parts.write.mode("overwrite").partitionBy("date").parquet(lake.path(f"{table}/{name}"))
    planned = Lake(lake.root, lake.manifest.with_run(name, dates))
    hours = read_table(spark, planned, "metrics").cache()
    told.begin("advice")
    newest = date.fromisoformat(max(planned.manifest.days))
    window = {day for day in planned.manifest.days if date.fromisoformat(day) > newest - timedelta(days=WINDOW_DAYS)}
    advice = advise(read_jobs(spark, lake, window), hours.where(hours["date"].isin(*window)), queues)
    advice.coalesce(1).write.mode("overwrite").parquet(lake.path(f"advice/{name}"))
    told.begin("anomalies")
    found = find_anomalies(hours, read_table(spark, planned, "days"))
    found.coalesce(1).write.mode("overwrite").parquet(lake.path(f"anomalies/{name}"))
    hours.unpersist()
    lake.publish(planned.manifest)


def _summarise(spark: SparkSession, lake: Lake, read: int, touched: int) -> Summary:
    manifest = lake.manifest
    if manifest.whole is None:
        return Summary(read, touched, 0, 0, 0, 0, 0)
    return Summary(
        read=read,
        days_measured=touched,
        jobs=sum(batch.rows for batch in manifest.batches),
        days=len(manifest.days),
        disagreements=read_table(spark, lake, "advice").where("size(disagrees) > 0").count(),
        anomalies=read_table(spark, lake, "anomalies").count(),
        quarantined=sum(batch.quarantined for batch in manifest.batches),
    )


@contextmanager
def settled(spark: SparkSession) -> Generator[None]:
    """Write and read times as the lake has them, for the block."""
    before = {name: spark.conf.get(name) for name in _SETTINGS}
    for name, value in _SETTINGS.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is not None:
                spark.conf.set(name, value)
