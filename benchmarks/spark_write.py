"""Writing jobs from Spark: atomic, idempotent and deduplicated, against JDBC's plain append, which is none of it.

Both write the same cached frame of two partitions over TCP: an id, in no order; 285 bytes of JSON; a priority. JDBC
appends to a queue in one table: a primary key, a unique id, an index to claim by, which is the least that workers could
run from; with batched inserts rewritten, and the batchsize that suits it best, found by trying in the same run. Beside
it stands an append to a table without any index, of which no worker could run a job. Tables are emptied before each
sample; that, and a checkpoint, are not counted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pgjq
from benchmarks.databases import connect, run_statement
from benchmarks.measure import Finding, Samples, Scale, Target, compare, interleave, jobs_per_second
from benchmarks.spark_peer import best, spark_session, tcp_server

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pgjq.embedded import EmbeddedServer

BATCHSIZES = (1_000, 10_000)
APPEND = Target(0.9)


class Contest:
    """The same frame, written in different ways."""

    def __init__(self, frame: DataFrame, url: str, port: int, count: int) -> None:
        self._frame = frame
        self._url = url
        self._jdbc = f"jdbc:postgresql://127.0.0.1:{port}/postgres?reWriteBatchedInserts=true"
        self._count = count

    def ours(self) -> float:
        """Time a write by pgjq."""
        self._empty()
        writer = self._frame.write.format("pgjq").options(url=self._url, queue="bench").mode("append")
        rate = jobs_per_second(self._count, writer.save)
        self._check("select count(*) from pgjq.job")
        return rate

    def theirs(self, table: str, batchsize: int) -> float:
        """Time an append by JDBC."""
        self._empty()
        writer = self._frame.write.format("jdbc").options(
            url=self._jdbc, dbtable=table, user="postgres", driver="org.postgresql.Driver", batchsize=batchsize
        )
        rate = jobs_per_second(self._count, writer.mode("append").save)
        self._check("select count(*) from one_table_queue" if table.endswith("queue") else "select 0", table)
        return rate

    def _empty(self) -> None:
        for name in ("truncate", "one_table_empty", "checkpoint"):
            run_statement(self._url, name)

    def _check(self, question: str, table: str = "one_table_queue") -> None:
        with connect(self._url) as connection:
            row = connection.execute(question).fetchone()  # pyright: ignore[reportArgumentType]
        assert row is not None
        assert row[0] == (self._count if table.endswith("queue") else 0)


def measure(_: EmbeddedServer, scale: Scale) -> list[Finding]:
    """Measure all three."""
    from pgjq.spark import register

    with tcp_server() as (url, port), spark_session() as spark:
        pgjq.migrate(url)
        register(spark)
        run_statement(url, "one_table_queue")
        frame = spark.range(0, scale.spark_rows, 1, 2).selectExpr(
            "md5(string(id)) as id",
            "to_json(named_struct('order', id, 'customer', md5(string(id)), 'note', repeat('x', 200))) as payload",
            "int(id % 3) as priority",
        )
        frame = frame.cache()
        assert frame.count() == scale.spark_rows
        contest = Contest(frame, url, port, scale.spark_rows)
        batchsize = best(BATCHSIZES, lambda size: lambda: contest.theirs("one_table_queue", size))
        samples = interleave(
            {
                "ours": contest.ours,
                "queue": lambda: contest.theirs("one_table_queue", batchsize),
                "heap": lambda: contest.theirs("one_table_heap", batchsize),
            },
            scale.spark_rounds,
        )
        return [
            _finding(
                samples, "queue", scale, f"JDBC's append to a queue in one table, batchsize {batchsize:,}", APPEND
            ),
            _finding(samples, "heap", scale, "JDBC's append to a table without an index", None),
        ]


def _finding(samples: Samples, theirs: str, scale: Scale, against: str, target: Target | None) -> Finding:
    what = f"{scale.spark_rows:,} jobs written, all or none, once"
    return compare(samples, "ours", theirs, what=what, against=against, unit="jobs/s", target=target)
