"""State changes as a stream: each of them once, with its job's names, its run and its error."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import pgjq
from pgjq.blocking import drive
from pgjq.lease import LeasePolicy
from pgjq.outcome import Completed, Failing, Released
from pgjq.spark.source import PgjqDataSource
from pgjq.storage.base import Settlement
from tests.spark.available_now import run_available
from tests.spark.finished_jobs import BOOM, ask, do, end

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def client(postgres: pgjq.PostgresStorage, database: str) -> pgjq.Client:
    """A client of a database that records state changes, with a queue of each kind of table."""
    do(database, "select pgjq.record_events(true)")
    client = pgjq.Client(postgres)
    client.create_queue("mail", retry_delay=0)
    client.create_queue("own", partition=True, retry_delay=0)
    return client


def reader(url: str, **options: str) -> Any:
    source = PgjqDataSource({"url": url, "view": "events"} | options)
    return source.streamReader(source.schema())


def read(source: Any, start: Any, until: Any) -> list[dict[str, Any]]:
    batches = [batch for span in source.partitions(start, until) for batch in source.read(span)]
    return sorted((row for batch in batches for row in batch.to_pylist()), key=lambda row: row["n"])


def everything(url: str, **options: str) -> list[dict[str, Any]]:
    source = reader(url, **options)
    start = source.initialOffset()
    return read(source, start, source.latestOffset(start, ReadAllAvailable()))


def stall(url: str) -> None:
    do(url, "update pgjq.job set locked_until = pgjq.now() - interval '1 h'")
    do(url, "select pgjq.reap(10, 0)")


@pytest.mark.parametrize("queue", ["mail", "own"])
def test_every_change_of_a_job_is_an_event(
    client: pgjq.Client, postgres: pgjq.PostgresStorage, database: str, queue: str
) -> None:
    operations = postgres.operations("sync")

    def claim() -> Any:
        return drive(operations.claim([queue], worker="worker-1", limit=1, policy=LeasePolicy()))

    client.enqueue(queue, "one", {"task": "resize", "args": []}, max_attempts=5)
    claim()
    stall(database)
    end(postgres, queue, Failing(BOOM.error))
    (job,) = claim()
    drive(operations.settle([Settlement(job.lease, Released())]))
    (job,) = claim()
    do(database, "update pgjq.job set locked_until = locked_until + interval '1 s'")  # A heartbeat is no event.
    drive(operations.settle([Settlement(job.lease, Completed(b"1"))]))
    client.enqueue(queue, "two", 2)
    client.cancel(queue, "two")

    events = [(row["id"], row["event"], row["state"], row["attempts"], row["run"]) for row in everything(database)]
    assert events == [
        ("one", "queued", "queued", 0, 0),
        ("one", "started", "processing", 1, 1),
        ("one", "stalled", "failing", 1, 1),
        ("one", "started", "processing", 2, 2),
        ("one", "retried", "failing", 2, 2),
        ("one", "started", "processing", 3, 3),
        ("one", "queued", "failing", 2, 3),
        ("one", "started", "processing", 3, 4),
        ("one", "ended", "completed", 3, 4),
        ("two", "queued", "queued", 0, 0),
        ("two", "cancelled", "cancelled", 0, 0),
    ]
    rows = [row for row in everything(database, queue=queue, task="resize") if row["event"] in ("stalled", "retried")]
    assert [(row["worker"], row["outcome"], json.loads(row["error"])["type"]) for row in rows] == [
        ("worker-1", "stalled", "Stalled"),
        ("worker-1", "failed", "Boom"),
    ]


def test_the_last_failure_and_the_last_stall_are_events_before_the_end(
    client: pgjq.Client, postgres: pgjq.PostgresStorage, database: str
) -> None:
    client.enqueue("mail", "failed", 1, max_attempts=1)
    end(postgres, "mail", BOOM)
    client.enqueue("mail", "stalled", 1, max_attempts=1)
    drive(postgres.operations("sync").claim(["mail"], worker="w", limit=1, policy=LeasePolicy()))
    stall(database)
    rows = [row for row in everything(database) if row["error"]]
    events = [(row["id"], row["event"], json.loads(row["error"])["type"]) for row in rows]
    assert events == [("failed", "ended", "Boom"), ("stalled", "stalled", "Stalled"), ("stalled", "ended", "Stalled")]


def test_a_change_that_commits_late_is_not_lost_and_none_comes_twice(client: pgjq.Client, database: str) -> None:
    source = reader(database, queue="mail")
    start = source.initialOffset()
    with psycopg.connect(database) as slow:
        slow.execute("select pgjq.enqueue('mail', '1', id => 'late')")
        client.enqueue("mail", "early", 1)
        assert source.latestOffset(start, ReadAllAvailable()) == start
        slow.commit()
    seen: list[str] = []
    while (until := source.latestOffset(start, ReadMaxRows(1))) != start:
        seen += [row["id"] for row in read(source, start, until)]
        start = until
    assert seen == ["late", "early"]


def test_events_that_are_not_recorded_are_an_error(client: pgjq.Client, database: str) -> None:
    client.enqueue("mail", "one", 1)
    do(database, "select pgjq.record_events(true)")  # Again: nothing happens.
    do(database, "select pgjq.record_events(false)")
    client.enqueue("mail", "two", 1)
    assert ask(database, "select count(*) from pgjq.job_event") == [(1,)]
    with pytest.raises(pgjq.StorageError, match=r"run `select pgjq.record_events\(true\)`"):
        reader(database).initialOffset()
    with pytest.raises(pgjq.ValidationError, match=r"unknown option finishedafter; .* eventAfter"):
        reader(database, finishedAfter="2026-01-01")
    with pytest.raises(pgjq.ValidationError, match="use readStream, or two"):
        PgjqDataSource({"url": database, "view": "events"}).reader(reader_schema())


def reader_schema() -> Any:
    return PgjqDataSource({"url": "postgresql:///", "view": "events"}).schema()


def test_old_events_are_removed_by_maintenance_and_points_in_time_are_options(
    client: pgjq.Client, database: str
) -> None:
    for name in ("old", "middle", "new"):
        client.enqueue("mail", name, 1)
    do(
        database,
        "update pgjq.job_event set at = pgjq.now() - interval '8 days' where n = (select min(n) from pgjq.job_event)",
    )
    ((_, middle), (_, new)) = ask(database, "select n, at from pgjq.job_event order by n")[1:]
    assert [row["id"] for row in everything(database, eventAfter=middle.isoformat())] == ["middle", "new"]
    assert [row["id"] for row in everything(database, eventBefore=new.isoformat())] == ["old", "middle"]
    do(database, "select pgjq.drop_old_stages()")
    assert [row["id"] for row in everything(database)] == ["middle", "new"]


def test_spark_streams_events_and_continues(
    spark: SparkSession, client: pgjq.Client, database: str, tmp_path: Path
) -> None:
    def run() -> None:
        source = spark.readStream.format("pgjq").options(url=database, view="events").load()
        writer = source.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        run_available(lambda: writer.trigger(availableNow=True).start(str(tmp_path / "events")))

    client.enqueue("mail", "one", 1)
    run()
    client.cancel("mail", "one")
    run()
    rows = spark.read.parquet(str(tmp_path / "events")).orderBy("n").collect()
    assert [(row["id"], row["event"]) for row in rows] == [("one", "queued"), ("one", "cancelled")]
