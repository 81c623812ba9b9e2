"""Spark's own cluster with one executor and with two: reading, writing, streaming, and the pipeline.

The cluster is that of the tests: a master and two workers of one core each, which take themselves for two machines. The
database, the driver and both executors share this machine, so on two cores the second executor gains less than it would
on a machine of its own.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.databases import migrated_database
from benchmarks.measure import Finding, Scale, compare
from pgjq.spark.pipeline.demo_history import History, make_history
from pgjq.spark.pipeline.extract import Source
from pgjq.spark.pipeline.run import run
from tests.spark.cluster import cluster, environment

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from pyspark.sql import SparkSession

    from pgjq.embedded import EmbeddedServer

EXECUTORS = (1, 2)
ROUNDS = 2
WHAT = ("read", "written", "streamed to Parquet", "through the pipeline")


class Work:
    """The same work, whatever does it."""

    def __init__(self, url: str, home: Path, rows: int) -> None:
        self._url = url
        self._home = home
        self._rows = rows
        self._names = map(str, count())

    def rates(self, spark: SparkSession) -> list[float]:
        """Return jobs per second of each kind of work."""
        works = (self._read, self._write, self._stream, self._pipeline)
        for work in works[:2]:
            work(spark)  # Executors start their Python, and load their classes.
        return [self._rate(spark, work) for work in works]

    def _rate(self, spark: SparkSession, work: Callable[[SparkSession], object]) -> float:
        begun = time.perf_counter()
        work(spark)
        return self._rows / (time.perf_counter() - begun)

    def _read(self, spark: SparkSession) -> None:
        history = spark.read.format("pgjq").options(url=self._url, numPartitions=4).load()
        history.write.format("noop").mode("overwrite").save()

    def _write(self, spark: SparkSession) -> None:
        name = next(self._names)
        jobs = spark.range(0, self._rows, 1, 4).selectExpr(
            f"concat('{name}-', id) as id", "to_json(named_struct('order', id)) as payload"
        )
        jobs.write.format("pgjq").options(url=self._url, queue=f"bench-{name}").mode("append").save()

    def _stream(self, spark: SparkSession) -> None:
        place = self._home / f"stream-{next(self._names)}"
        rows = spark.readStream.format("pgjq").options(url=self._url, numPartitions=4).load()
        writer = rows.writeStream.format("parquet").option("checkpointLocation", f"{place}/checkpoint")
        writer.trigger(availableNow=True).start(f"{place}/rows").awaitTermination()

    def _pipeline(self, spark: SparkSession) -> None:
        run(spark, Source(self._url), str(self._home / f"lake-{next(self._names)}"))


@contextmanager
def session(master: str, executors: int) -> Generator[SparkSession]:
    """Start a session that has so many executors, and all of them."""
    from pyspark.sql import SparkSession

    from pgjq.spark import register

    builder = SparkSession.builder.master(master).appName("pgjq benchmarks")
    settings = {
        "spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": str(executors),
        "spark.scheduler.minRegisteredResourcesRatio": "1.0", "spark.ui.enabled": "false", "spark.log.level": "ERROR",
        "spark.ui.showConsoleProgress": "false", "spark.sql.shuffle.partitions": "4",
    }  # fmt: skip
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def measure(server: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure one executor and two by turns, each with a session of its own."""
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0) - timedelta(days=1)
    os.environ.update(environment())
    with (
        migrated_database(server, "cluster") as conninfo,
        tempfile.TemporaryDirectory(prefix="pgjq-bench-cluster-") as home,
        cluster(Path(home)) as master,
    ):
        rows = make_history(conninfo, History(midnight, scale.spark_rows // 5, days=28))
        work = Work(conninfo, Path(home), rows)
        samples: dict[int, list[list[float]]] = {executors: [] for executors in EXECUTORS}
        for turn in range(ROUNDS):
            for executors in EXECUTORS[::-1] if turn % 2 else EXECUTORS:
                with session(master, executors) as spark:
                    samples[executors].append(work.rates(spark))
    named = {
        n: {str(executors): [rates[n] for rates in samples[executors]] for executors in EXECUTORS}
        for n in range(len(WHAT))
    }
    return [
        compare(
            named[n], "2", "1", what=f"{rows:,} jobs {what}, two executors", against="one executor", unit="jobs/s",
            target=None,
        )
        for n, what in enumerate(WHAT)
    ]  # fmt: skip
