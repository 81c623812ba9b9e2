"""What Spark reads is what SQL says."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

import pgjq
from pgjq.outcome import Completed
from pgjq.spark import process
from pgjq.spark.adbc import BATCH_BYTES
from pgjq.spark.reader import split
from pgjq.spark.source import PgjqDataSource
from tests.spark.available_now import run_available
from tests.spark.finished_jobs import BOOM, ask, do, end, finish, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COLUMNS = (
    "queue, id, state, priority, attempts, max_attempts, stalled, worker, created_at, started_at, finished_at, "
    "payload, result, error"
)
# The same, written for people and independently of the code under test.
HISTORY = """
select
    q.name, b.id, case d.state when 3 then 'completed' when 4 then 'failed' when 5 then 'cancelled' end, -d.rank,
    d.attempts, d.max_attempts, d.stalled, w.name, b.created_at, d.started_at, d.finished_at,
    convert_from(b.payload, 'UTF8'), convert_from(d.result, 'UTF8'), d.error
from pgjq.done d join pgjq.body b using (seq, queue_id) join pgjq.queue q on q.id = d.queue_id
left join pgjq.worker w on w.id = d.worker_id
"""


@pytest.fixture
def past(postgres: pgjq.PostgresStorage, database: str) -> str:
    """Jobs of two queues, one with tables of its own: completed, failed, cancelled, used again, and alive."""
    client = pgjq.Client(postgres)
    client.create_queue("own", partition=True)
    client.enqueue_many("own", [(f"own-{n}", {"n": n, "text": "Zoë ✓"}) for n in range(5)])
    end(postgres, "own", Completed(b'{"done": true}'))
    client.enqueue("mail", "failed", {"to": "ann"}, priority=7)
    end(postgres, "mail", BOOM)
    client.enqueue("mail", "again", 1)
    end(postgres, "mail", BOOM)
    client.enqueue("mail", "again", 2)  # As another job: what became of the first is history.
    end(postgres, "mail", Completed(b"null"))
    client.enqueue("mail", "cancelled", None)
    client.cancel("mail", "cancelled")
    client.enqueue("mail", "waiting", [1, 2, 3])
    return database


def read(url: str, schema: StructType | None = None, **options: Any) -> list[Any]:
    """Read as Spark's tasks do, one after the other, without Spark."""
    source = PgjqDataSource({"url": url} | {name: str(value) for name, value in options.items()})
    reader = source.reader(source.schema() if schema is None else schema)
    batches = [batch for span in reader.partitions() for batch in reader.read(span)]
    return [SimpleNamespace(**row) for batch in batches for row in batch.to_pylist()]


def tuples(spark_rows: list[Any]) -> set[tuple[Any, ...]]:
    """Rows as SQL gives them: Spark's points in time come without a zone, in that of the session, which is UTC."""
    return {tuple(v.replace(tzinfo=UTC) if isinstance(v, datetime) else v for v in row) for row in spark_rows}


def test_history_is_what_sql_says_for_every_column_and_in_every_partition(spark: SparkSession, past: str) -> None:
    history = load(spark, past, numPartitions=3)
    assert history.columns == COLUMNS.split(", ")
    assert history.rdd.getNumPartitions() == 3
    rows = history.collect()
    assert len(rows) == 9
    assert tuples(rows) == set(ask(past, HISTORY))


def test_jobs_are_those_of_the_view_with_their_payloads(past: str) -> None:
    rows = read(past, view="jobs", columns="queue,id,state,payload", numPartitions=2)
    said = ask(
        past, "select queue, id, state, convert_from(payload, 'UTF8') from pgjq.jobs join pgjq.body using (seq, id)"
    )
    assert len(rows) == 9
    assert {tuple(vars(row).values()) for row in rows} == set(said)
    assert {row.state for row in rows} == {"queued", "completed", "failed", "cancelled"}


def test_queues_have_their_definitions_and_their_counts(past: str, postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).update_queue("own", retry_limit=9, expire_in_seconds=60)
    by_name = {row.queue: row for row in read(past, view="queues")}
    assert set(by_name) == {"own", "mail"}
    own, mail = by_name["own"], by_name["mail"]
    assert (own.partition, own.retry_limit, own.expire_in_seconds, own.completed, own.total) == (True, 9, 60.0, 5, 5)
    assert (mail.policy, mail.retry_limit, mail.ready, mail.failed, mail.cancelled) == ("standard", 2, 1, 1, 1)


def test_only_the_columns_that_were_named_are_read(spark: SparkSession, past: str) -> None:
    named = load(spark, past, columns="state, queue", queue="mail")
    assert named.columns == ["state", "queue"]
    assert sorted(row.state for row in named.collect()) == ["cancelled", "completed", "failed", "failed"]
    typed = spark.read.format("pgjq").schema("id string, finished_at timestamp").options(url=past).load()
    assert tuples(typed.collect()) == set(
        ask(past, "select b.id, d.finished_at from pgjq.done d join pgjq.body b using (seq, queue_id)")
    )
    assert load(spark, past).count() == 9


def test_conditions_are_options_and_apply_to_every_use_of_a_frame(spark: SparkSession, past: str) -> None:
    middle = ask(past, "select percentile_disc(0.5) within group (order by finished_at) from pgjq.done")[0][0]
    frame = load(spark, past, queue="mail", state="failed, cancelled", finishedAfter=middle.isoformat())
    wanted = set(ask(past, HISTORY + "where q.name = 'mail' and d.state in (4, 5) and d.finished_at >= %s", middle))
    assert tuples(frame.where("attempts = 1").collect()) == {row for row in wanted if row[4] == 1}
    assert tuples(frame.collect()) == wanted  # As often as the frame is used.


def test_each_condition_leaves_out_what_it_says(past: str, postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "named", {"task": "resize", "args": []})
    end(postgres, "mail", Completed(b"1"))
    everything = read(past, columns="id,finished_at,created_at,task")
    at = sorted(row.finished_at for row in everything)[7]
    born = sorted(row.created_at for row in everything)[7]
    conditions = {
        "finishedAfter": (at.isoformat(), lambda row: row.finished_at >= at),
        "finishedBefore": (at.isoformat(), lambda row: row.finished_at < at),
        "createdAfter": (born.isoformat(), lambda row: row.created_at >= born),
        "createdBefore": (born.isoformat(), lambda row: row.created_at < born),
        "task": ("resize", lambda row: row.id == "named"),
    }
    for name, (value, holds) in conditions.items():
        found = read(past, columns="id,finished_at,created_at,task", **{name: value})
        assert found == [row for row in everything if holds(row)], name
        assert 0 < len(found) < len(everything)
    assert [row.id for row in read(past, view="jobs", state="failed")] == ["failed"]


@pytest.mark.parametrize("view", ["history", "jobs", "queues"])
def test_a_queue_that_does_not_exist_is_an_error(past: str, view: str) -> None:
    with pytest.raises(pgjq.QueueNotFoundError, match="there is no queue 'mial'"):
        read(past, view=view, queue="mial")


@pytest.mark.parametrize("view", ["history", "jobs"])
def test_partitions_have_as_many_rows_as_others_whatever_their_numbers(
    postgres: pgjq.PostgresStorage, database: str, view: str
) -> None:
    finish(postgres, "mail", [f"before-{n}" for n in range(60)])
    do(database, "select setval('pgjq.job_seq', 1000000000)")
    finish(postgres, "mail", [f"after-{n}" for n in range(20)])
    source = PgjqDataSource({"url": database, "view": view, "columns": "id", "numPartitions": "4"})
    reader = source.reader(source.schema())
    sizes = [sum(batch.num_rows for batch in reader.read(span)) for span in reader.partitions()]
    assert (len(sizes), sum(sizes)) == (4, 80)
    assert all(18 <= size <= 22 for size in sizes), sizes


def test_names_with_quotes_are_names(past: str, postgres: pgjq.PostgresStorage) -> None:
    name = 'it\'s "a" %s\\ue:name; --'
    finish(postgres, name, ["o'one", "b\\2"])
    for view in ("history", "jobs"):
        assert {row.id for row in read(past, view=view, queue=name)} == {"o'one", "b\\2"}
    assert [row.queue for row in read(past, view="queues", queue=name)] == [name]


def test_a_read_is_of_the_moment_when_it_was_planned(past: str, postgres: pgjq.PostgresStorage) -> None:
    source = PgjqDataSource({"url": past, "columns": "id", "numPartitions": "2"})
    reader = source.reader(source.schema())
    spans = reader.partitions()
    with psycopg.connect(past) as slow:
        slow.execute("select pg_current_xact_id()")  # So that the late one is not simply beyond all that is known.
        planned_meanwhile = reader.partitions()
        finish(postgres, "mail", ["late"])
    for planned in (spans, planned_meanwhile):
        ids = [row for span in planned for batch in reader.read(span) for row in batch.column(0).to_pylist()]
        assert len(ids) == 9
        assert "late" not in ids
    pgjq.Client(postgres).delete_job("mail", "failed")  # What has been removed since is gone as a whole.
    left = [row for span in spans for batch in reader.read(span) for row in batch.column(0).to_pylist()]
    assert left == [job_id for job_id in ids if job_id != "failed"]
    assert len(read(past, columns="id")) == 10  # The one that waited has ended, too.


def test_times_are_the_same_moment_in_every_time_zone(spark: SparkSession, past: str) -> None:
    said = {row[0] for row in ask(past, "select floor(extract(epoch from finished_at))::bigint from pgjq.done")}
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")
        seen = load(spark, past, columns="finished_at").select(f.unix_timestamp("finished_at").alias("at"))
        assert {row["at"] for row in seen.collect()} == said
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_what_is_no_text_or_no_time_is_still_read(past: str) -> None:
    do(past, r"update pgjq.body set payload = '\x82ff00' where id = 'failed'")
    do(past, "update pgjq.done set started_at = 'infinity', finished_at = '-infinity' where state = 5")
    rows = {row.id: row for row in read(past, queue="mail") if row.id != "again"}
    assert rows["failed"].payload == r"\x82ff00"
    assert rows["failed"].result is None
    assert rows["cancelled"].payload == "null"
    assert (rows["cancelled"].started_at, rows["cancelled"].finished_at) == (None, None)


def test_a_task_holds_one_batch_however_much_there_is(postgres: pgjq.PostgresStorage, database: str) -> None:
    finish(postgres, "big", map(str, range(100)))
    do(database, "update pgjq.body set payload = convert_to(repeat('x', 1000000), 'UTF8')")
    source = PgjqDataSource({"url": database})
    reader = source.reader(source.schema())
    batches = reader.read(*reader.partitions())
    sizes = [next(batches).nbytes]
    copying = "select state from pg_stat_activity where starts_with(query, 'COPY') and datname = current_database()"
    assert ask(database, copying) == [("active",)]  # The server waits until more is wanted.
    sizes += [batch.nbytes for batch in batches]
    assert sum(sizes) > 100_000_000
    assert max(sizes) < BATCH_BYTES + 2_000_000


def test_numbers_at_their_bounds_are_read_whole(past: str) -> None:
    do(past, "update pgjq.done set attempts = 32767, max_attempts = 32767, stalled = 32767, rank = -32767")
    do(past, "update pgjq.done set worker_id = null where state = 4")
    counts = ("priority", "attempts", "max_attempts", "stalled")
    rows = read(past)
    assert {tuple(getattr(row, name) for name in counts) for row in rows} == {(32767,) * 4}
    assert {(row.queue, row.state, row.worker) for row in rows} == {
        ("own", "completed", "worker-1"),
        ("mail", "failed", None),
        ("mail", "completed", "worker-1"),
        ("mail", "cancelled", None),
    }


def test_history_that_was_restored_from_another_server_is_read(past: str) -> None:
    do(past, "update pgjq.done set xid = 1000000000000 where state = 4")
    assert len(read(past)) == 9


@pytest.mark.parametrize("cuts", [None, [], [5], [4, 4, 9], [6, 7, 7, 30], [7, 6]])
def test_spans_cover_every_number_once(cuts: list[int] | None) -> None:
    spans = split(5, 9, cuts)
    assert [number for first, last in spans for number in range(first, last)] == [5, 6, 7, 8]
    assert all(a < b for a, b in spans)


BAD_OPTIONS = {
    "a view that is none": ({"view": "everything"}, "view must be one of history, jobs, queues"),
    "a column that is none": ({"columns": "id,colour"}, "the view history has no column 'colour'"),
    "no partition": ({"numPartitions": 0}, "numPartitions must be a whole number from 1 to 10000, not '0'"),
    "too many partitions": ({"numPartitions": 10**9}, "numPartitions must be a whole number from 1 to 10000"),
    "digits without end": ({"numPartitions": "9" * 5000}, "numPartitions must be a whole number from 1 to 10000"),
    "a misspelt option": ({"veiw": "jobs"}, "unknown option veiw; the options here are url"),
    "an option of a write": ({"writeId": "one"}, "unknown option writeid; the options here are url"),
    "a path": ({"path": "mail"}, "unknown option path; the options here are url"),
    "a queue that none can be": ({"queue": "a\0b"}, "a queue's name must not hold control characters"),
    "another storage": ({"url": "redis://localhost"}, "Spark reads and writes PostgreSQL, not redis"),
    "pushdown": ({"pushdown": "true"}, "there is no option pushdown, .*; filter by the options state, task"),
    "a state that is none": ({"state": "failed,done"}, "state must be one or more of queued, .*, not 'done'"),
    "a time that is none": ({"finishedAfter": "yesterday"}, "finishedAfter must be a date such as 2026-08-01"),
    "a condition on queues": ({"view": "queues", "state": "failed"}, "the view queues takes no state"),
}


@pytest.mark.parametrize("case", BAD_OPTIONS)
def test_bad_options_are_named(database: str, case: str) -> None:
    options, message = BAD_OPTIONS[case]
    with pytest.raises(pgjq.ValidationError, match=message):
        read(**{"url": database} | options)


def test_a_column_of_another_type_is_named(database: str) -> None:
    with pytest.raises(pgjq.ValidationError, match="column 'attempts' of the view history is int, not string"):
        read(database, StructType([StructField("attempts", StringType())]))


def test_an_empty_database_has_no_history_and_one_without_a_schema_says_what_to_run(
    spark: SparkSession, database: str, empty_database: str
) -> None:
    assert load(spark, database).count() == 0
    with pytest.raises(pgjq.SchemaError, match="pgjq migrate"):
        read(empty_database)


def test_passwords_show_nowhere(
    spark: SparkSession, spark_log: Path, past: str, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    secret = "hunter2-in-the-url"
    url = make_conninfo(past, password=secret)
    frame = load(spark, url, columns="id")
    frame.explain(mode="extended")
    frame.explain(mode="formatted")
    jobs = frame.where("id like 'own-%'").selectExpr("id", "'1' as payload")
    jobs.write.format("pgjq").options(url=url, queue="copies").mode("append").save()
    stream = spark.readStream.format("pgjq").options(url=url, columns="id,payload", queue="own").load().writeStream
    writer = stream.format("pgjq").options(url=url, queue="copies", queryId="copies", checkpointLocation=str(tmp_path))
    run_available(writer.trigger(availableNow=True).start)
    process(spark, "copies", lambda job: job.id, url=url, tasks=1)
    assert ask(past, "select count(*) from pgjq.jobs where queue = 'copies' and state = 'completed'") == [(5,)]
    errors: list[str] = []
    for broken in (make_conninfo(url, port=1), f"postgres//user:{secret}@host", url + " nonsense"):
        with pytest.raises((AnalysisException, PythonException)) as caught:
            load(spark, broken).collect()
        errors.append(str(caught.value))
    # Spark hands on what its Python processes say in its own time; the duplicates of a write are among it.
    while "0 jobs were added to queue copies and 5 were there already (write copies)" not in spark_log.read_text():
        time.sleep(0.05)
    assert secret not in "".join([*errors, *capfd.readouterr(), spark_log.read_text()])
    assert secret not in frame._jdf.queryExecution().toString() + repr(frame)
    # What the pages of Spark's UI show, it takes from the events that the log has.
    log = Path(spark.sparkContext.getConf().get("spark.eventLog.dir").removeprefix("file://"))
    for place in (log, tmp_path):
        files = [path for path in place.rglob("*") if path.is_file()]
        assert files
        assert not any(secret in path.read_text(errors="replace") for path in files)


def test_the_runs_that_did_not_complete_are_a_column(past: str) -> None:
    for view in ("history", "jobs"):
        rows = read(past, view=view, columns="id, state, runs")
        failed = [json.loads(row.runs) for row in rows if row.state == "failed"]
        assert failed
        for (run,) in failed:
            assert (run["number"], run["outcome"], run["error"]["type"]) == (1, "failed", BOOM.error.type)
        assert {row.runs for row in rows if row.state == "completed"} == {None}
