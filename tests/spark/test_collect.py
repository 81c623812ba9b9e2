"""Round trip from a data frame to results: every id once, failures included, and what happens when time runs out."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

import pgjq
from pgjq.spark import enqueue_and_collect
from tests.spark.finished_jobs import ask

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyspark.sql import SparkSession


@contextmanager
def worker(url: str, stuck: threading.Event) -> Generator[None]:
    """Run a worker that doubles numbers, fails at 3, and hangs at 7 until it is told to stop."""
    storage = pgjq.PostgresStorage(url)
    queue = pgjq.Queue("double", storage=storage, concurrency=4)

    def double(job: pgjq.Job) -> int:
        if job.payload["n"] == 3:
            raise pgjq.Discard("not this one")
        if job.payload["n"] == 7:
            stuck.set()
            job.signal.wait(60)
        return 2 * job.payload["n"]

    queue.execute(double)
    with queue:
        yield
    storage.close()


def test_results_and_errors_come_back_as_a_frame(spark: SparkSession, database: str) -> None:
    frame = spark.range(0, 6, 1, 2).selectExpr("concat('job-', id) as id", "to_json(named_struct('n', id)) as payload")
    client = pgjq.Client(pgjq.PostgresStorage(database))
    client.enqueue("double", "job-5", {"n": 50})  # It was there before, and is waited for as well.
    seen: list[tuple[int, int]] = []
    with client, worker(database, threading.Event()):
        results = enqueue_and_collect(
            frame, "double", url=database, timeout=120, progress=lambda ended, total: seen.append((ended, total))
        )
        rows = {row["id"]: row for row in results.collect()}
    assert {name: row["result"] for name, row in rows.items() if row["state"] == "completed"} == {
        "job-0": "0", "job-1": "2", "job-2": "4", "job-4": "8", "job-5": "100",
    }  # fmt: skip
    failed = rows["job-3"]
    assert (failed["state"], failed["attempts"], json.loads(failed["error"])["message"]) == (
        "failed",
        1,
        "not this one",
    )
    assert seen[-1] == (6, 6)
    results.unpersist()


def test_when_time_runs_out_the_jobs_are_cancelled_if_wanted(spark: SparkSession, database: str) -> None:
    frame = spark.range(6, 9).selectExpr("concat('job-', id) as id", "to_json(named_struct('n', id)) as payload")
    with pytest.raises(pgjq.TimeoutError, match=r"3 jobs of queue double have not ended within 0.5 s"):
        enqueue_and_collect(frame, "double", url=database, timeout=0.5)
    assert ask(database, "select distinct state from pgjq.jobs") == [("queued",)]
    with pytest.raises(pgjq.TimeoutError):
        enqueue_and_collect(frame, "double", url=database, timeout=0.5, cancel=True)
    assert ask(database, "select distinct state from pgjq.jobs") == [("cancelled",)]


def test_what_cannot_be_done_is_said_before_anything_is_written(spark: SparkSession, database: str) -> None:
    with pytest.raises(pgjq.ValidationError, match="column 'id' is missing"):
        enqueue_and_collect(spark.range(1).toDF("n"), "double", url=database, timeout=1)
    with pytest.raises(pgjq.ValidationError, match="timeout"):
        enqueue_and_collect(spark.range(1), "double", url=database, timeout=0)
