"""The data source `pgjq`: the entry point for Spark's readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pgjq.errors import ValidationError
from pgjq.spark.columns import check_schema, schema_of
from pgjq.spark.options import READING, STREAM_WRITING, STREAMING, WRITING, read_options
from pgjq.spark.reader import FilteringReader, JobsReader, QueuesReader
from pgjq.spark.stream import EndingsReader
from pgjq.spark.writer import JobsWriter, StreamWriter

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class PgjqDataSource(DataSource):
    """Jobs in PostgreSQL, to read and to write, as batches and as streams: `docs/spark.md`."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `.format(…)`."""
        return "pgjq"

    def schema(self) -> StructType:
        """Return the columns of the view, or the requested ones."""
        options = read_options(self.options)
        return schema_of(options.view, options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of these columns."""
        options = read_options(self.options, READING)
        check_schema(options.view, schema)
        if options.view == "queues":
            if options.pushdown:
                raise ValidationError("the view queues is small and takes no pushdown")
            return QueuesReader(options, schema)
        return FilteringReader(options, schema) if options.pushdown else JobsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of endings as a stream."""
        options = read_options(self.options, STREAMING)
        return EndingsReader(options, check_schema(options.view, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  (Spark's signature)
        """Return the writer that makes jobs from a data frame."""
        return JobsWriter(read_options(self.options, WRITING), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Return the writer that makes jobs from a stream."""
        return StreamWriter(read_options(self.options, STREAM_WRITING), schema, overwrite=overwrite)
