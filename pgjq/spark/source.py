"""The data source `pgjq`: the entry point for Spark's readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pgjq.errors import ValidationError
from pgjq.spark.columns import check_schema, schema_of
from pgjq.spark.options import (
    CONDITIONS,
    EVENTS,
    EVENTS_BATCH,
    READING,
    STREAM_WRITING,
    STREAMING,
    WRITING,
    read_options,
)
from pgjq.spark.reader import JobsReader, QueuesReader
from pgjq.spark.stream import SpanReader, StreamReader
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
        options = read_options(self.options)
        options = read_options(self.options, EVENTS_BATCH if options.view == "events" else READING)
        check_schema(options.view, schema)
        if options.starting_offset is not None and options.ending_offset is not None:
            return SpanReader(options, schema, options.starting_offset, options.ending_offset)
        if options.starting_offset is not None or options.ending_offset is not None:
            raise ValidationError("startingOffset and endingOffset come together")
        if options.view == "queues":
            if conditions := [name for name in CONDITIONS if name.lower() in {key.lower() for key in self.options}]:
                raise ValidationError(f"the view queues takes no {conditions[0]}: it has queues, not jobs")
            return QueuesReader(options, schema)
        if options.view == "events":
            raise ValidationError("state changes are read as a stream: use readStream, or two of its offsets")
        return JobsReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802  (Spark's name)
        """Return the reader of endings or state changes as a stream."""
        options = read_options(self.options)
        options = read_options(self.options, EVENTS if options.view == "events" else STREAMING)
        return StreamReader(options, check_schema(options.view, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001  (Spark's signature)
        """Return the writer that makes jobs from a data frame."""
        return JobsWriter(read_options(self.options, WRITING), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: FBT001, N802
        """Return the writer that makes jobs from a stream."""
        return StreamWriter(read_options(self.options, STREAM_WRITING), schema, overwrite=overwrite)
