"""Reading history into Spark: all fourteen columns, and four of them, against Spark's own JDBC source.

Both read the same rows over TCP in two partitions that are cut by the same numbers, into Spark's `noop` sink, which
takes every value of every row. JDBC gets the join that somebody would write for it, with both tables cut, the session
settings that pgjq gives itself, and the fetchsize that suits it best, found by trying in the same run. For the four
columns JDBC prunes what it selects by itself.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pgjq
from benchmarks.databases import run_statement, statement
from benchmarks.measure import Finding, Samples, Scale, Target, compare, interleave, jobs_per_second
from benchmarks.spark_peer import best, spark_session, tcp_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pgjq.embedded import EmbeddedServer

PARTITIONS = 2
FETCHSIZES = (1_000, 10_000, 50_000)
# What sql/queries/configure_streaming_session.sql sets. Without hash joins instead of nested loops JDBC was as fast.
SESSION = (
    "set enable_nestloop = off; set jit = off; set random_page_cost = 1.1; set max_parallel_workers_per_gather = 0"
)
FOUR = ("queue", "state", "started_at", "finished_at")
ALL_COLUMNS, FOUR_COLUMNS = Target(1.0), Target(1.3)


class Contest:
    """The same past, read in two ways."""

    def __init__(self, spark: SparkSession, url: str, port: int, count: int) -> None:
        self._spark = spark
        self._url = url
        self._jdbc = f"jdbc:postgresql://127.0.0.1:{port}/postgres"
        self._count = count

    def ours(self, columns: tuple[str, ...] | None) -> float:
        """Time a read by pgjq."""
        reader = self._spark.read.format("pgjq").options(url=self._url, numPartitions=PARTITIONS)
        if columns is not None:
            reader = reader.option("columns", ",".join(columns))
        return self._rate(reader.load())

    def theirs(self, columns: tuple[str, ...] | None, fetchsize: int) -> float:
        """Time a read by JDBC."""
        table = f"({statement('history_for_jdbc')}) as h"
        properties = {
            "user": "postgres",
            "driver": "org.postgresql.Driver",
            "fetchsize": str(fetchsize),
            "sessionInitStatement": SESSION,
        }
        frame = self._spark.read.jdbc(self._jdbc, table, predicates=self._predicates(), properties=properties)
        frame = frame.drop("done_seq", "body_seq")
        return self._rate(frame if columns is None else frame.select(*columns))

    def _predicates(self) -> list[str]:
        bounds = [1 + self._count * n // PARTITIONS for n in range(PARTITIONS + 1)]
        return [
            f"done_seq >= {a} and done_seq < {b} and body_seq >= {a} and body_seq < {b}" for a, b in pairwise(bounds)
        ]

    def _rate(self, frame: DataFrame) -> float:
        def read() -> None:
            frame.write.format("noop").mode("overwrite").save()

        return jobs_per_second(self._count, read)


def measure(_: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure both widths."""
    from pgjq.spark import register

    with tcp_server() as (url, port), spark_session() as spark:
        pgjq.migrate(url)
        register(spark)
        run_statement(url, "fill_history", {"count": scale.spark_rows})
        run_statement(url, "vacuum")
        contest = Contest(spark, url, port, scale.spark_rows)
        assert spark.read.format("pgjq").options(url=url, columns="id").load().count() == scale.spark_rows
        return [
            _finding(contest, scale, None, "all columns", ALL_COLUMNS),
            _finding(contest, scale, FOUR, "four columns", FOUR_COLUMNS),
        ]


def _finding(contest: Contest, scale: Scale, columns: Any, label: str, target: Target) -> Finding:
    fetchsize = best(FETCHSIZES, lambda size: lambda: contest.theirs(columns, size))
    samples: Samples = interleave(
        {"ours": lambda: contest.ours(columns), "theirs": lambda: contest.theirs(columns, fetchsize)},
        scale.spark_rounds,
    )
    return compare(
        samples,
        "ours",
        "theirs",
        what=f"{scale.spark_rows:,} rows of history, {label}",
        against=f"Spark's JDBC source, fetchsize {fetchsize:,}",
        unit="jobs/s",
        target=target,
    )
