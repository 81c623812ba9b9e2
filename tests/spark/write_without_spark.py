"""Writes without Spark: what its tasks stage and its driver commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.types import StringType, StructField, StructType

from pgjq.spark.options import read_options
from pgjq.spark.writer import JobsWriter
from tests.spark.finished_jobs import ask

if TYPE_CHECKING:
    from collections.abc import Sequence

FRAME = StructType([StructField("id", StringType()), StructField("payload", StringType())])


def rows(ids: Sequence[str], **columns: Any) -> pa.RecordBatch:
    payloads = pa.array([f'{{"of": "{job_id}"}}' for job_id in ids], pa.string())
    return pa.RecordBatch.from_pydict({"id": pa.array(ids, pa.string()), "payload": payloads} | columns)


def writer(url: str, **options: Any) -> JobsWriter:
    return JobsWriter(read_options({"url": url, "queue": "mail"} | options), FRAME, overwrite=False)


def stages(url: str) -> list[str]:
    return [row[0] for row in ask(url, "select relname from pg_class where starts_with(relname, 'stage_')")]


def ids(url: str) -> list[str]:
    return [
        row[0] for row in ask(url, "select b.id from pgjq.body b join pgjq.job j using (seq, queue_id) order by seq")
    ]
