"""Copy new endings from the database to the lake, each once.

Spark's checkpoint, which is part of the lake, stores how far the stream of endings was read, as transaction numbers
(`pgjq.spark.stream`). A batch is written, checked and published, in this order; only then does the checkpoint count it
as done. So wherever a run is killed:

* Every ending before the checkpoint's number is in the lake, because the batch was published before the number was
  raised.
* No ending is in it twice: a repeated batch has the same number, by which it is recognised.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as F  # noqa: N812

from pgjq.errors import StorageError, ValidationError
from pgjq.spark.available_now import run_available
from pgjq.spark.pipeline.endings import COLUMNS, SCHEMA, endings
from pgjq.spark.pipeline.lake import CHECKPOINT, JOBS, Batch, Lake
from pgjq.spark.pipeline.quality import KEY, check

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Source:
    """The source of endings: a database and a schema; endings before `since` are left out."""

    url: str = field(repr=False)
    schema: str = "pgjq"
    since: datetime | None = None

    def options(self) -> dict[str, Any]:
        """Return the options of the data source."""
        return {"url": self.url, "schema": self.schema}


def extract(spark: SparkSession, source: Source, lake: Lake, told: Callable[[int], object]) -> int:
    """Add endings since the last run to the lake; return their number. Calls `told` per batch."""
    if lake.manifest.batches and not (lake.root / CHECKPOINT).is_dir():
        raise ValidationError(
            f"{lake.root} has lost its {CHECKPOINT}: how far it was read is not known; name a new lake"
        )
    failures: list[Exception] = []
    before = sum(batch.rows for batch in lake.manifest.batches)

    def take(rows: DataFrame, number: int) -> None:
        try:
            told(_take(spark, lake, _since(rows, source.since), number))
        except Exception as error:
            failures.append(error)  # Spark would pass on only its text.
            raise

    stream = spark.readStream.format("pgjq").options(**source.options(), columns=",".join(COLUMNS)).load()
    writer = stream.writeStream.foreachBatch(take).option("checkpointLocation", lake.path(CHECKPOINT))
    try:
        run_available(writer.trigger(availableNow=True).start)
    except StreamingQueryException as error:
        if failures:
            raise failures[0] from error
        raise StorageError(str(error)) from error
    return sum(batch.rows for batch in lake.manifest.batches) - before


def _since(rows: DataFrame, since: datetime | None) -> DataFrame:
    return rows if since is None else rows.where(F.col("finished_at") >= since)


def read_jobs(spark: SparkSession, lake: Lake, dates: Collection[str] | None = None) -> DataFrame:
    """Read the table `jobs`, or some of its days."""
    return _read(spark, lake, lake.manifest.directories(JOBS, dates))


def _read(spark: SparkSession, lake: Lake, directories: Collection[str]) -> DataFrame:
    reader = spark.read.schema(SCHEMA).option("basePath", lake.path(JOBS))
    return reader.parquet(*(lake.path(directory) for directory in directories))


def _take(spark: SparkSession, lake: Lake, rows: DataFrame, number: int) -> int:
    """Write a batch, check the written files, and publish it; the database is read once."""
    name = f"batch={number}"
    if lake.manifest.has(name):
        return 0
    home = lake.path(f"{JOBS}/{name}")
    # One file per day, sorted by queue: readers of one queue skip the rest of the file.
    arranged = endings(rows).repartition("date").sortWithinPartitions("date", "queue", "finished_at", "seq")
    arranged.write.mode("overwrite").partitionBy("date").parquet(home)
    written = spark.read.schema(SCHEMA).parquet(home)
    counted = check(written, _known(spark, lake, written))
    batch = Batch(name, sum(counted.values()), tuple(sorted(counted)))
    if batch.rows:
        lake.publish(lake.manifest.with_batch(batch))
    return batch.rows


def _known(spark: SparkSession, lake: Lake, written: DataFrame) -> DataFrame | None:
    """Return the lake's endings on the days of a batch: a repeated ending would be among them."""
    if not lake.manifest.batches:
        return None
    dates = {str(row["date"]) for row in written.select("date").distinct().collect()}
    directories = lake.manifest.directories(JOBS, dates)
    return _read(spark, lake, directories).select(*KEY) if directories else None
