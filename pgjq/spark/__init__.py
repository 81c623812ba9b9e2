"""pgjq and Spark: a data source to read and write jobs with, and Spark as a worker. See `docs/spark.md`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pgjq.errors import MissingExtraError

try:
    import pyspark as _pyspark  # noqa: F401
except ImportError as error:
    raise MissingExtraError("spark") from error

from pgjq.spark.source import PgjqDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["PgjqDataSource", "register"]


def register(spark: SparkSession) -> None:
    """Make `pgjq` known to a session as a format. Where this package is installed, Spark finds it by itself as well."""
    spark.dataSource.register(PgjqDataSource)
