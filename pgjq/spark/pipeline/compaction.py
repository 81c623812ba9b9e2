"""Compaction and retention of a lake.

Each run adds a directory of endings. When there are 24 of a level, they are merged into one of the next level: a lake
of many years of hourly runs has some hundred directories, and each ending was copied a few times. A merge is published
as a batch is: killed before the rename, it is done again.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pgjq.errors import StorageError
from pgjq.spark.pipeline.extract import SCHEMA, arrange, read_directories
from pgjq.spark.pipeline.manifest import JOBS, QUARANTINE, Batch

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import date

    from pyspark.sql import SparkSession

    from pgjq.spark.pipeline.lake import Lake


def compact(spark: SparkSession, lake: Lake, told: Callable[[str], object]) -> int:
    """Merge batches where there are many; return how many directories were merged.

    Calls `told` before a merge.
    """
    merged = 0
    while parts := lake.manifest.mergeable():
        told("compaction")
        merged += len(parts)
        _merge(spark, lake, parts)
    return merged


def forget(lake: Lake, first: date) -> None:
    """Remove the days before one from all tables."""
    if any(day < str(first) for day in lake.manifest.days):
        lake.publish(lake.manifest.since(str(first)))


def _merge(spark: SparkSession, lake: Lake, parts: list[Batch]) -> None:
    name = f"{parts[-1].name}+{parts[-1].level + 1}"
    days = Counter[str]()
    for batch in parts:
        days.update(batch.days)
    rows = read_directories(spark, lake, [f"{JOBS}/{batch.name}/date={day}" for batch in parts for day in batch.days])
    arrange(rows).write.mode("overwrite").partitionBy("date").parquet(lake.path(f"{JOBS}/{name}"))
    written = spark.read.schema(SCHEMA).parquet(lake.path(f"{JOBS}/{name}")).groupBy("date").count().collect()
    if {str(row["date"]): row["count"] for row in written} != dict(days):
        raise StorageError(f"merging {len(parts)} batches of {lake.root} changed their number of endings")
    bad = [batch for batch in parts if batch.quarantined]
    if bad:
        found = spark.read.parquet(*(lake.path(f"{QUARANTINE}/{batch.name}") for batch in bad))
        found.coalesce(1).write.mode("overwrite").parquet(lake.path(f"{QUARANTINE}/{name}"))
    numbers = (parts[0].numbers[0], parts[-1].numbers[1])
    merged = Batch(name, numbers, dict(days), sum(batch.quarantined for batch in parts), parts[-1].level + 1)
    lake.publish(lake.manifest.with_merged(merged, parts))
