"""pgjq for Spark: a data source that reads and writes jobs, and a worker (`docs/spark.md`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.errors import MissingExtraError
from pgjq.spark.requirements import RequirementError, check_java, check_spark

try:
    import pyspark
except ImportError as error:
    raise MissingExtraError("spark") from error

check_spark(pyspark.__version__)

from pgjq.spark.collect import enqueue_and_collect  # noqa: E402  (an older Spark lacks what these import)
from pgjq.spark.options import read_options  # noqa: E402
from pgjq.spark.process import Processed, process  # noqa: E402
from pgjq.spark.source import PgjqDataSource  # noqa: E402
from pgjq.spark.writer import Written, read_written  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "PgjqDataSource",
    "Processed",
    "RequirementError",
    "Written",
    "check_java",
    "enqueue_and_collect",
    "process",
    "register",
    "written",
]


def register(spark: SparkSession) -> None:
    """Register the format `pgjq` in a session; with pgjq installed, Spark finds it as well."""
    spark.dataSource.register(PgjqDataSource)


def written(write_id: str, *, url: str | None = None, schema: str = "pgjq", batch: int = 0) -> Written | None:
    """Return how many jobs a write added and how many existed before; None: it was not made.

    `write_id` is the `writeId` of a write, or the `queryId` of a stream together with the number of a batch.
    """
    options = {"schema": schema} | ({} if url is None else {"url": url})
    return read_written(read_options(options), write_id, batch)
