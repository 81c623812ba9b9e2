"""Endings as a stream: none lost, none twice."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

import pgjq
from pgjq.outcome import Completed
from pgjq.spark import stream
from pgjq.spark.columns import schema_of
from pgjq.spark.options import read_options
from pgjq.spark.stream import StreamReader
from tests.spark.available_now import STARTS, TOO_SLOW, run_available
from tests.spark.finished_jobs import ask, do, end, finish

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def reader(url: str, **options: Any) -> StreamReader:
    return StreamReader(read_options({"url": url, **options}), schema_of("history", ["id"]))


def read(source: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    batches = [batch for span in source.partitions(start, end) for batch in source.read(span)]
    return [job_id for batch in batches for job_id in batch.column(0).to_pylist()]


@pytest.fixture
def slow(database: str) -> Iterator[psycopg.Connection[Any]]:
    """A long transaction of another session."""
    with psycopg.connect(database) as connection:
        yield connection


def settle_one(connection: psycopg.Connection[Any], id: str) -> None:
    """Complete a job in a transaction that stays open, as `job.transaction()` does."""
    connection.execute(
        """
        with moved as (
            delete from pgjq.job j using pgjq.body b where b.seq = j.seq and b.id = %s
            returning j.seq, j.queue_id, j.rank, j.max_attempts
        )
        insert into pgjq.done (
            seq, queue_id, finished_at, expires_at, lease, delete_after, rank, attempts, max_attempts, stalled, state
        )
        select seq, queue_id, now(), now(), 1, 1, rank, 1, max_attempts, 0, 3 from moved
        """,
        [id],
    )


def test_an_ending_that_commits_late_is_not_lost(
    postgres: pgjq.PostgresStorage, database: str, slow: psycopg.Connection[Any]
) -> None:
    source = reader(database)
    start = source.initialOffset()
    queue = pgjq.Queue("mail", storage=postgres)
    queue.enqueue_many([("late-1", 1), ("late-2", 1)])
    settle_one(slow, "late-1")
    with psycopg.connect(database) as slower:
        settle_one(slower, "late-2")
        finish(postgres, "other", ["early"])
        first = source.latestOffset(start, ReadAllAvailable())
        assert read(source, start, first) == []  # "early" is there, but two that began before it are not.
        slow.commit()
        second = source.latestOffset(first, ReadAllAvailable())
        assert read(source, first, second) == ["late-1"]
        slower.commit()
    third = source.latestOffset(second, ReadAllAvailable())
    assert read(source, second, third) == ["late-2", "early"]
    queue.enqueue("not-over", 1)
    assert source.latestOffset(third, ReadAllAvailable()) == third  # There were transactions, and none ended a job.


def test_a_stream_says_who_holds_it_back(
    postgres: pgjq.PostgresStorage,
    database: str,
    slow: psycopg.Connection[Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stream, "LONG", 0.0)
    slow.execute("select pg_current_xact_id()")
    finish(postgres, "mail", ["one"])
    source = reader(database)
    with caplog.at_level(logging.WARNING, logger="pgjq.spark"):
        source.latestOffset(source.initialOffset(), ReadAllAvailable())
    holder = rf"process {slow.info.backend_pid} in database {slow.info.dbname}, open for \d+ s"
    (said,) = [record.getMessage() for record in caplog.records]
    assert re.fullmatch(f"the stream of history waits for an open transaction: {holder}", said)
    newest = source.reportLatestOffset()
    assert newest is not None
    assert re.fullmatch(holder, newest["waits_for"])
    slow.rollback()
    assert "waits_for" not in (source.reportLatestOffset() or {})


def test_a_limit_never_cuts_a_transaction(postgres: pgjq.PostgresStorage, database: str) -> None:
    for number, size in enumerate((3, 5, 2, 1)):
        finish(postgres, "mail", [f"{number}-{n}" for n in range(size)])
    source = reader(database, numPartitions=2)
    sizes: list[int] = []
    start = source.initialOffset()
    while (until := source.latestOffset(start, ReadMaxRows(4))) != start:
        if ids := read(source, start, until):
            sizes.append(len(ids))
        start = until
    assert sizes == [3, 5, 3]


def test_what_is_available_now_does_not_grow(postgres: pgjq.PostgresStorage, database: str) -> None:
    finish(postgres, "mail", ["now"])
    source = reader(database)
    start = source.initialOffset()
    source.prepareForTriggerAvailableNow()
    finish(postgres, "mail", ["later"])
    until = source.latestOffset(start, ReadAllAvailable())
    assert read(source, start, until) == ["now"]
    assert source.latestOffset(until, ReadAllAvailable()) == until


def test_a_stream_of_one_queue_with_tables_of_its_own(postgres: pgjq.PostgresStorage, database: str) -> None:
    pgjq.Client(postgres).create_queue("own", partition=True)
    finish(postgres, "own", ["mine"])
    finish(postgres, "mail", ["theirs"])
    source = reader(database, queue="own")
    start = source.initialOffset()
    assert read(source, start, source.latestOffset(start, ReadMaxRows(1))) == ["mine"]


def test_each_ending_of_a_job_that_was_retried_is_one(postgres: pgjq.PostgresStorage, database: str) -> None:
    source = reader(database)
    start = source.initialOffset()
    client = pgjq.Client(postgres)
    client.enqueue("mail", "twice", 1)
    client.cancel("mail", "twice")
    middle = source.latestOffset(start, ReadAllAvailable())
    assert read(source, start, middle) == ["twice"]
    client.retry("mail", "twice")
    end(postgres, "mail", Completed(b"1"))
    assert read(source, middle, source.latestOffset(middle, ReadAllAvailable())) == ["twice"]


def test_offsets_of_another_server_are_refused(postgres: pgjq.PostgresStorage, database: str) -> None:
    finish(postgres, "mail", ["one"])
    source = reader(database)
    with pytest.raises(pgjq.StorageError, match=r"checkpoint is of another PostgreSQL server \(123"):
        source.latestOffset({"sys": "123", "xid": "7"}, ReadAllAvailable())
    with pytest.raises(pgjq.StorageError, match=r"has read transactions to 9+, and the server's newest is \d+"):
        source.latestOffset(source.initialOffset() | {"xid": "9" * 15}, ReadAllAvailable())
    with pytest.raises(pgjq.QueueNotFoundError, match="there is no queue 'mial'"):
        reader(database, queue="mial").initialOffset()
    do(database, "update pgjq.done set xid = 1000000000000")
    with pytest.raises(pgjq.StorageError, match="restored from another server's dump"):
        reader(database).initialOffset()
    do(database, "update pgjq.done set xid = 0")
    start = source.initialOffset()
    assert read(source, start, source.latestOffset(start, ReadAllAvailable())) == ["one"]


def test_a_role_that_may_only_read_can_stream(postgres: pgjq.PostgresStorage, database: str) -> None:
    finish(postgres, "mail", ["one"])
    do(database, "create role spark_reader login")
    try:
        do(
            database,
            "grant usage on schema pgjq to spark_reader; grant select on all tables in schema pgjq to spark_reader",
        )
        source = reader(psycopg.conninfo.make_conninfo(database, user="spark_reader"))
        start = source.initialOffset()
        assert read(source, start, source.latestOffset(start, ReadAllAvailable())) == ["one"]
    finally:
        do(database, "drop owned by spark_reader; drop role spark_reader")


def test_a_stream_reads_rows_that_do_not_change(database: str) -> None:
    with pytest.raises(pgjq.ValidationError, match="a stream reads history or events, not jobs"):
        reader(database, view="jobs")


def test_parquet_has_every_ending_once_whatever_was_killed(
    spark: SparkSession, postgres: pgjq.PostgresStorage, database: str, tmp_path: Path
) -> None:
    lake, checkpoint = tmp_path / "lake", tmp_path / "checkpoint"

    def run() -> None:
        source = spark.readStream.format("pgjq").options(url=database, maxRowsPerBatch=40, columns="id,state").load()
        writer = source.writeStream.format("parquet").option("checkpointLocation", str(checkpoint))
        run_available(lambda: writer.trigger(availableNow=True).start(str(lake)))

    for part in range(2):
        finish(postgres, "mail", [f"{part}-{n}" for n in range(30)])
    run()
    # Killed between writing a batch and noting that it was done: Spark makes the batch again.
    last = max((checkpoint / "commits").glob("[0-9]*"))
    last.unlink()
    last.with_name(f".{last.name}.crc").unlink()
    finish(postgres, "mail", ["new"])
    # Killed in the middle of a batch, when some of it was read: it fails, and is made again.
    do(database, "alter table pgjq.body rename to hidden")
    try:
        with pytest.raises(StreamingQueryException, match="does not exist"):
            run()
    finally:
        do(database, "alter table pgjq.hidden rename to body")
    run()
    ids = [row.id for row in spark.read.parquet(str(lake)).collect()]
    assert sorted(ids) == sorted(row[0] for row in ask(database, "select id from pgjq.body"))
    assert len(set(ids)) == 61


class Query:
    """A query that fails with these errors, one after the other, and then succeeds."""

    def __init__(self, *errors: str) -> None:
        self.errors = list(errors)
        self.starts = 0

    def start(self) -> Any:
        self.starts += 1
        return self

    def awaitTermination(self) -> None:  # noqa: N802  (the name is Spark's)
        if self.errors:
            raise StreamingQueryException(self.errors.pop(0))


def test_a_stream_whose_python_process_starts_too_slowly_is_started_again() -> None:
    query = Query(*[f"[STREAM_FAILED] {TOO_SLOW}"] * (STARTS - 1))
    run_available(query.start)
    assert query.starts == STARTS
    for error in (TOO_SLOW, "relation does not exist"):
        query = Query(*[error] * STARTS)
        with pytest.raises(StreamingQueryException, match=error):
            run_available(query.start)
        assert query.starts == (STARTS if error == TOO_SLOW else 1)
