"""Copy new endings from the database to the lake, each once.

The manifest has the offset of the stream of endings up to which the lake has them (`pgjq.spark.offsets`). A run reads
from there to the newest offset, as one batch: it is written, checked and published, and the manifest that names the
batch has its offset. So wherever a run is killed, every ending before the manifest's offset is in the lake, once.

A server that was restored, or a standby that was promoted without the last endings, cannot continue from the offset.
Then `restart` reads everything that ended from a point in time on again, and leaves out what the lake has.

Rows that cannot be true are published in the table `quarantine`, and the others of their batch in `jobs`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.datasource import ReadAllAvailable

from pgjq.errors import StorageError
from pgjq.spark.columns import schema_of
from pgjq.spark.offsets import OffsetError
from pgjq.spark.options import read_options
from pgjq.spark.pipeline.jobs_table import COLUMNS, SCHEMA, endings
from pgjq.spark.pipeline.manifest import JOBS, QUARANTINE, Batch
from pgjq.spark.pipeline.quality import KEY, count_sound, judge
from pgjq.spark.stream import StreamReader

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession

    from pgjq.spark.offsets import Offset
    from pgjq.spark.pipeline.lake import Lake


@dataclass(frozen=True, slots=True)
class Source:
    """The source of endings: a database and a schema.

    Endings before `since`, or `restart`, are left out.
    """

    url: str = field(repr=False)
    schema: str = "pgjq"
    since: datetime | None = None
    restart: datetime | None = None

    def options(self) -> dict[str, Any]:
        """Return the options of the data source."""
        return {"url": self.url, "schema": self.schema}


def extract(spark: SparkSession, source: Source, lake: Lake, told: Callable[[int], object]) -> int:
    """Add endings since the last run to the lake; return their number.

    Calls `told` with it when they are published.
    """
    stream = StreamReader(read_options(source.options()), schema_of("history", COLUMNS))
    start, end = _offsets(stream, source, lake)
    if end == start:
        return 0
    span = {"startingOffset": json.dumps(start), "endingOffset": json.dumps(end), "columns": ",".join(COLUMNS)}
    rows = spark.read.format("pgjq").options(**source.options(), **span).load()
    if source.since is not None:
        rows = rows.where(F.col("finished_at") >= source.since)
    if source.restart is not None:
        rows = _without_known(spark, lake, rows.where(F.col("finished_at") >= source.restart), source.restart)
    try:
        batch = _write(spark, lake, rows, lake.manifest.newest + 1)
    except PySparkException as error:
        raise StorageError(f"the endings could not be copied: {error}") from error
    lake.publish(lake.manifest.with_batch(batch, end))
    told(batch.rows)
    return batch.rows


def _offsets(stream: StreamReader, source: Source, lake: Lake) -> tuple[Offset, Offset]:
    """Return the offset up to which the lake has the endings, and the newest."""
    known = None if source.restart else lake.manifest.offset
    start = dict(known or stream.initialOffset())
    try:
        return start, stream.latestOffset(start, ReadAllAvailable())
    except OffsetError as error:
        raise StorageError(
            f"the lake cannot continue on this server: {error.reason}; run once with --restart-from and a time shortly "
            "before that happened"
        ) from error


def _without_known(spark: SparkSession, lake: Lake, rows: DataFrame, begins: datetime) -> DataFrame:
    """Leave out the endings that the lake has."""
    first = str(begins.astimezone(UTC).date())
    dates = {date for batch in lake.manifest.batches for date in batch.days if date >= first}
    if not dates:
        return rows
    return rows.join(read_jobs(spark, lake, dates).select(*KEY), [*KEY], "left_anti")


def read_jobs(spark: SparkSession, lake: Lake, dates: Collection[str] | None = None) -> DataFrame:
    """Read the table `jobs`, or some of its days."""
    return read_directories(spark, lake, lake.manifest.directories(JOBS, dates))


def read_directories(spark: SparkSession, lake: Lake, directories: Collection[str]) -> DataFrame:
    """Read some directories of the table `jobs`."""
    reader = spark.read.schema(SCHEMA).option("basePath", lake.path(JOBS))
    return reader.parquet(*(lake.path(directory) for directory in directories)).drop("batch")


def arrange(rows: DataFrame) -> DataFrame:
    """Arrange endings in one file per day, sorted by queue, so that readers can skip."""
    return rows.repartition("date").sortWithinPartitions("date", "queue", "finished_at", "seq")


def _write(spark: SparkSession, lake: Lake, rows: DataFrame, number: int) -> Batch:
    """Write a batch and check the written files; the database is read once."""
    name = f"batch={number}"
    arrange(endings(rows)).write.mode("overwrite").partitionBy("date").parquet(lake.path(f"{JOBS}/{name}"))
    written = spark.read.schema(SCHEMA).parquet(lake.path(f"{JOBS}/{name}"))
    before = _known(spark, lake, written)
    counted = count_sound(written, before)
    return _sift(lake, judge(written, before), number) if counted is None else Batch(name, (number, number), counted)


def _sift(lake: Lake, judged: DataFrame, number: int) -> Batch:
    """Rewrite a batch's rows: the valid ones, and the others with the rules they break."""
    name, judged = f"batch={number}s", judged.persist()
    try:
        good = judged.where("violation is null").drop("violation")
        arrange(good).write.mode("overwrite").partitionBy("date").parquet(lake.path(f"{JOBS}/{name}"))
        bad = judged.where("violation is not null").drop("date")
        bad.coalesce(1).write.mode("overwrite").parquet(lake.path(f"{QUARANTINE}/{name}"))
        days = {str(row["date"]): row["count"] for row in good.groupBy("date").count().collect()}
        return Batch(name, (number, number), days, bad.count())
    finally:
        judged.unpersist()


def _known(spark: SparkSession, lake: Lake, written: DataFrame) -> DataFrame | None:
    """Return the lake's endings on the days of a batch: a repeated ending would be among them."""
    if not lake.manifest.batches:
        return None
    dates = {str(row["date"]) for row in written.select("date").distinct().collect()}
    directories = lake.manifest.directories(JOBS, dates)
    return read_directories(spark, lake, directories).select(*KEY) if directories else None
