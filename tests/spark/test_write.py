"""Spark writes jobs, and runs them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f

import pgjq
from pgjq.lease import LeasePolicy
from pgjq.spark import Processed, process, written
from tests.spark.finished_jobs import ask

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STAGES = "select count(*) from pg_class where starts_with(relname, 'stage_')"


def killed_once(marker: str) -> Any:
    """Make a function of a row that kills its process the first time it gets to one of them, in whatever process."""

    def check(job_id: str) -> str:
        if job_id == "job-450":
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                return job_id
            os.kill(os.getpid(), signal.SIGKILL)
        return job_id

    return f.udf(check, "string", useArrow=False)


def test_a_write_that_is_killed_in_the_middle_enqueues_every_job_once(
    spark: SparkSession, database: str, tmp_path: Path
) -> None:
    jobs = spark.range(0, 500, 1, 3).select(
        killed_once(str(tmp_path / "killed"))(f.concat(f.lit("job-"), "id")).alias("id"),
        f.struct("id", f.lit("x").alias("kind")).alias("payload"),
        (f.col("id") % 3).cast("int").alias("priority"),
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 50)  # So that some are on the stage by then.
    for _ in range(2):
        jobs.write.format("pgjq").options(url=database, queue="mail", writeId="one").mode("append").save()
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    counted = ask(
        database,
        "select count(*), count(distinct id), sum((convert_from(payload, 'UTF8')::json ->> 'id')::int), sum(rank) "
        "from pgjq.body join pgjq.job using (seq, queue_id)",
    )
    assert counted == [(500, 500, sum(range(500)), -sum(n % 3 for n in range(500)))]
    assert (tmp_path / "killed").exists()
    assert ask(database, STAGES) == [(0,)]
    done = written("one", url=database)
    assert done is not None
    assert (done.jobs, done.duplicates) == (500, 0)


def test_a_write_that_fails_for_good_leaves_no_job(spark: SparkSession, database: str) -> None:
    jobs = spark.range(0, 10, 1, 2).selectExpr(
        "concat('job-', id) as id", "case when id = 7 then '{oops' else '1' end as payload"
    )
    with pytest.raises((AnalysisException, PythonException), match="the payload of job 'job-7' is not JSON"):
        jobs.write.format("pgjq").options(url=database, queue="mail").mode("append").save()
    assert ask(database, "select count(*) from pgjq.body") == [(0,)]
    assert ask(database, STAGES) == [(0,)]
    with pytest.raises((AnalysisException, PythonException), match="column 'payload' is missing"):
        spark.range(3).selectExpr("string(id) as id").write.format("pgjq").options(url=database, queue="mail").mode(
            "append"
        ).save()


def test_a_stream_that_repeats_a_batch_enqueues_it_once(spark: SparkSession, database: str, tmp_path: Path) -> None:
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"

    def run() -> None:
        rows = spark.readStream.schema("id string, payload string").parquet(str(source))
        (
            rows.writeStream.format("pgjq")
            .options(url=database, queue="mail", queryId="orders", checkpointLocation=str(checkpoint))
            .trigger(availableNow=True)
            .start()
            .awaitTermination()
        )

    spark.range(0, 50).selectExpr("concat('a-', id) as id", "'1' as payload").write.parquet(str(source))
    run()
    last = max((checkpoint / "commits").glob("[0-9]*"))
    last.unlink()  # As if it had been killed after the sink's commit and before Spark's.
    last.with_name(f".{last.name}.crc").unlink()
    ids = ask(database, "update pgjq.body set id = 'seen-' || id returning id")  # Or they would only be duplicates.
    assert len(ids) == 50
    spark.range(50, 60).selectExpr("concat('a-', id) as id", "'1' as payload").write.mode("append").parquet(str(source))
    run()
    assert ask(database, "select count(*), count(distinct id) from pgjq.body") == [(60, 60)]
    assert ask(database, STAGES) == [(0,)]


def test_executors_that_are_killed_lose_no_job(
    spark: SparkSession, postgres: pgjq.PostgresStorage, database: str
) -> None:
    client = pgjq.Client(postgres)
    client.enqueue_many("heavy", [(f"job-{n}", n) for n in range(20)])

    def work(job: pgjq.Job) -> int:
        if job.id == "job-3" and job.attempts == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if job.id == "job-5":
            raise pgjq.Discard("not this one")
        return job.payload * 2

    told = process(
        spark,
        "heavy",
        work,
        url=database,
        tasks=2,
        concurrency=2,
        lease_policy=LeasePolicy(lease=2.0, heartbeat=0.5, reap_interval=0.5),
    )
    states = ask(database, "select state, count(*) from pgjq.jobs group by state order by state")
    assert states == [("completed", 19), ("failed", 1)]
    assert client.get_result("heavy", "job-3") == 6
    status = client.get_status("heavy", "job-3")
    assert status is not None
    assert (status.attempts, status.stalled) == (2, 1)
    assert isinstance(told, Processed)
    assert told.completed <= 19
    assert told.completed >= 1
