"""Where Spark looks for the data source `pgjq` by itself: it imports every package whose name begins with pyspark_."""

from pgjq.spark.source import PgjqDataSource as DefaultSource

__all__ = ["DefaultSource"]
