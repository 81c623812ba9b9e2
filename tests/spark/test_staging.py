"""From batches to jobs, without Spark: what its tasks and its driver do, in every order that it may do it in."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampNTZType

import pgjq
from pgjq.blocking import drive
from pgjq.job import NewJob
from pgjq.outcome import Completed
from pgjq.spark import commit, staging
from pgjq.spark.job_rows import check_frame, staged
from pgjq.spark.options import read_options
from pgjq.spark.writer import JobsWriter, StreamWriter, read_written
from tests.spark.finished_jobs import BOOM, ask, do, end
from tests.spark.write_without_spark import FRAME, ids, rows, stages, writer

if TYPE_CHECKING:
    from collections.abc import Iterator

# Everything that an enqueue decides about a job, but for its number and the moment.
ROWS = """
select id, to_jsonb(row(
    run_at = created_at, ready, rank, attempts, max_attempts, result_ttl, delete_after, singleton_key, state, options,
    source, superseded, lease, blocked, awaited
))
from pgjq.body join pgjq.job using (seq, queue_id)
"""


@pytest.fixture(autouse=True, params=[1, 1_000], ids=["over two connections", "over one"])
def large(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every story is told of a write that counts as large, and of one that does not."""
    monkeypatch.setattr(commit, "LARGE", request.param)


@pytest.fixture(autouse=True)
def swept(database: str) -> Iterator[None]:
    yield
    do(database, "select pgjq.drop_old_stages(-3600)")


def test_staged_rows_become_jobs_as_an_enqueue_makes_them(postgres: pgjq.PostgresStorage, database: str) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("mail", retry_limit=6, retry_delay=5, delete_after_seconds=60)
    later = datetime.now(UTC) + timedelta(hours=1)
    client.enqueue_many(
        "mail", [NewJob("plain", {"of": "x"}), NewJob("rich", 1, priority=5, run_at=later, singleton_key="k")]
    )
    one = writer(database)
    rich = rows(
        ["rich*"],
        priority=pa.array([5], pa.int32()),
        run_at=pa.array([later], pa.timestamp("us", "UTC")),
        singleton_key=pa.array(["k"]),
    )
    one.commit([one.write(iter([rows(["plain*"])])), one.write(iter([rich])), one.write(iter([]))])
    found = dict(ask(database, ROWS))
    assert found["plain*"] == found["plain"]
    assert found["rich*"] == found["rich"]
    assert ask(database, "select run_at from pgjq.job where rank = -5") == [(later,), (later,)]
    assert stages(database) == []


def test_only_what_the_driver_names_becomes_jobs(database: str) -> None:
    one, other = writer(database), writer(database, queue="other")
    theirs = other.write(iter([rows(["x"])]))
    for _ in range(2):
        second = one.write(iter([rows(["a", "b"])]))  # Tried twice, and the first one's answer was lost.
    assert len(stages(database)) == 3
    one.commit([second])
    assert ids(database) == ["a", "b"]
    assert stages(database) == [theirs.stage]
    zombie = one.write(iter([rows(["a", "b"])]))  # Which woke up long after.
    assert ids(database) == ["a", "b"]
    assert sorted(stages(database)) == sorted([str(theirs.stage), str(zombie.stage)])
    assert ask(database, "select pgjq.drop_old_stages(3600)") == [(0,)]
    assert ask(database, "select pgjq.drop_old_stages(-1)") == [(2,)]
    assert stages(database) == []


def test_a_write_that_fails_leaves_nothing(database: str) -> None:
    one = writer(database)
    message = one.write(iter([rows(["a"])]))
    with pytest.raises(pgjq.StorageError, match="did not report its stage"):
        one.commit([message, None])
    one.abort([None, None])  # Not even the task that had staged something was heard of again.
    assert stages(database) == []
    with pytest.raises(pgjq.SchemaError):
        one.commit([message])
    assert (ids(database), stages(database), ask(database, "select count(*) from pgjq.bulk_write")) == ([], [], [(0,)])


def test_rows_that_are_missing_stop_the_commit(database: str) -> None:
    one = writer(database)
    message = one.write(iter([rows(["a", "b"])]))
    with pytest.raises(pgjq.StorageError, match="3 rows were staged, but 2 were added or skipped"):
        one.commit([replace(message, rows=3)])
    assert ids(database) == []
    one.commit([message])
    assert ids(database) == ["a", "b"]


def test_a_write_of_the_same_name_is_made_once(database: str) -> None:
    options = read_options({"url": database})
    for _ in range(2):
        one = writer(database, writeId="monday")
        one.commit([one.write(iter([rows(["a", "b"])]))])
    again = writer(database, writeId="monday")
    again._made = False  # It looked before the first one had committed.
    again.commit([again.write(iter([rows(["c"])]))])
    assert (ids(database), stages(database)) == (["a", "b"], [])
    written = read_written(options, "monday")
    assert written is not None
    assert (written.queue, written.jobs, written.duplicates) == ("mail", 2, 0)


def test_two_that_write_under_one_name_at_once_make_one_write(database: str) -> None:
    both = [writer(database, writeId="monday") for _ in range(2)]
    staged_by = [one.write(iter([rows([f"{n}-{i}" for i in range(300)])])) for n, one in enumerate(both)]
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda pair: pair[0].commit([pair[1]]), zip(both, staged_by, strict=True)))
    assert len({job_id.partition("-")[0] for job_id in ids(database)}) == 1
    assert (len(ids(database)), stages(database)) == (300, [])


def test_a_queue_that_was_deleted_meanwhile_is_made_anew(postgres: pgjq.PostgresStorage, database: str) -> None:
    client = pgjq.Client(postgres)
    client.create_queue("mail", partition=True)
    one = writer(database)
    message = one.write(iter([rows(["a"])]))
    client.delete_queue("mail")
    one.commit([message])
    assert (ids(database), client.get_queue("mail").partition) == (["a"], False)


def test_a_stream_writes_each_batch_once(database: str) -> None:
    options = read_options({"url": database, "queue": "mail", "queryId": "orders"})
    for batch, names in [(0, ["a", "b"]), (1, ["c"]), (1, ["c"]), (2, ["d"])]:
        message = StreamWriter(options, FRAME, overwrite=False).write(iter([rows(names)]))
        StreamWriter(options, FRAME, overwrite=False).commit([message], batch)
    assert (ids(database), stages(database)) == (["a", "b", "c", "d"], [])
    anew = StreamWriter(options, FRAME, overwrite=False).write(iter([rows(["e"])]))
    with pytest.raises(pgjq.StorageError, match=r"batch 0 of orders comes after its batch 2: .* needs a new queryId"):
        StreamWriter(options, FRAME, overwrite=False).commit([anew], 0)
    StreamWriter(options, FRAME, overwrite=False).abort([anew], 0)
    assert (ids(database), stages(database)) == (["a", "b", "c", "d"], [])
    with pytest.raises(pgjq.ValidationError, match="option queryId is missing"):
        StreamWriter(read_options({"url": database, "queue": "mail"}), FRAME, overwrite=False)


def test_ids_that_are_taken_are_counted_and_ids_that_are_free_again_are_used(
    postgres: pgjq.PostgresStorage, database: str, caplog: pytest.LogCaptureFixture
) -> None:
    client = pgjq.Client(postgres)
    client.enqueue("mail", "completed", 1)
    end(postgres, "mail", Completed(b"1"))
    client.enqueue("mail", "failed", 1)
    end(postgres, "mail", BOOM)
    client.enqueue("mail", "cancelled", 1)
    client.cancel("mail", "cancelled")
    client.enqueue("mail", "waiting", 1)
    one = writer(database, writeId="w")
    names = ["completed", "failed", "cancelled", "waiting", "new", "new"]
    one.commit([one.write(iter([rows(names)])), one.write(iter([rows(["new", "newer"])]))])
    assert sorted(ids(database)) == ["cancelled", "failed", "new", "newer", "waiting"]
    written = read_written(read_options({"url": database}), "w")
    assert written is not None
    assert (written.jobs, written.duplicates) == (4, 4)
    # A warning: Spark commits in a process of its own, where nothing less is seen.
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warning == "4 jobs were added to queue mail and 4 were there already (write w)"
    status = client.get_status("mail", "failed")
    assert status is not None
    assert (status.state, status.attempts) == ("queued", 0)


@pytest.mark.parametrize(
    ("policy", "added"), [("standard", 6), ("short", 3), ("singleton", 6), ("stately", 3), ("exclusive", 3)]
)
def test_policies_hold(postgres: pgjq.PostgresStorage, database: str, policy: Any, added: int) -> None:
    pgjq.Client(postgres).create_queue("mail", policy=policy)
    one = writer(database, writeId="w")
    keys = pa.array(["k", "k", "l", "l", None, None])
    one.commit([one.write(iter([rows(list("abcdef"), singleton_key=keys)]))])
    written = read_written(read_options({"url": database}), "w")
    assert written is not None
    assert (written.jobs, written.duplicates, len(ids(database))) == (added, 6 - added, added)


def test_strict_order_needs_keys(postgres: pgjq.PostgresStorage, database: str) -> None:
    pgjq.Client(postgres).create_queue("mail", policy="key_strict_fifo", partition=True)
    one = writer(database)
    message = one.write(iter([rows(["a", "b"], singleton_key=pa.array(["k", None]))]))
    with pytest.raises(pgjq.StorageError, match="every job needs a singleton_key: queue mail"):
        one.commit([message])
    one.abort([message])
    one.commit([one.write(iter([rows(["b", "a"], singleton_key=pa.array(["k", "k"]))]))])
    assert ids(database) == ["b", "a"]


def test_sleeping_workers_wake_and_subscribers_hear(postgres: pgjq.PostgresStorage, database: str) -> None:
    operations = postgres.operations("sync")
    subscription = drive(operations.subscribe("mail"))
    one = writer(database)
    one.commit([one.write(iter([rows(["a", "b"])]))])
    heard = drive(subscription.next(10))
    assert sorted((event.name, event.id) for event in heard) == [("queued", "a"), ("queued", "b")]
    drive(subscription.close())


def test_payloads_are_json_of_any_kind(database: str) -> None:
    one = writer(database)
    at = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
    batches = [
        pa.RecordBatch.from_pydict({"id": ["struct"], "payload": [{"at": at, "n": 1, "in": {"x": [1.5, None]}}]}),
        pa.RecordBatch.from_pydict(
            {"id": pa.array(["map"]), "payload": pa.array([[("a", 1), ("b", 2)]], pa.map_(pa.string(), pa.int64()))}
        ),
        pa.RecordBatch.from_pydict({"id": ["text"], "payload": ['{"a":  "Zoë ✓ \\u0000"}']}),
    ]
    one.commit([one.write(iter([batch])) for batch in batches])
    found = dict(ask(database, "select id, convert_from(payload, 'UTF8') from pgjq.body"))
    assert found == {
        "struct": '{"at":"2026-01-31T09:30:00+00:00","n":1,"in":{"x":[1.5,null]}}',
        "map": '{"a":1,"b":2}',
        "text": '{"a":  "Zoë ✓ \\u0000"}',
    }


BAD_ROWS = {
    "no id": ({"id": pa.array([None], pa.string())}, "column 'id' must not be null"),
    "an empty id": ({"id": pa.array([""])}, "a job's id must have 1 to 512 characters"),
    "a long id": ({"id": pa.array(["x" * 513])}, "there is one with 513"),
    "NUL in an id": ({"id": pa.array(["a\0b"])}, "must not hold a NUL"),
    "no payload": ({"payload": pa.array([None], pa.string())}, "payload of job 'one' is null"),
    "what is no JSON": ({"payload": pa.array(["{'a': 1}"])}, "the payload of job 'one' is not JSON"),
    "NaN": ({"payload": pa.array([{"x": float("nan")}])}, "payload of job 'one' cannot be serialised"),
    "a priority out of bounds": ({"priority": pa.array([40_000])}, "priority must be between -32767 and 32767"),
    "text that is no JSON to others": ({"payload": pa.array(["NaN"])}, "of job 'one' is not JSON: .*NaN"),
    "NUL in a payload": ({"payload": pa.array(['"a\0b"'])}, "the payload of job 'one' cannot be stored: invalid byte"),
    "JSON without end": ({"payload": pa.array(["[" * 200_000])}, "the payload of job 'one' cannot be stored: stack"),
    "a key twice": (
        {"payload": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int64()))},
        "the payload of job 'one' cannot be written as JSON: .*duplicate key was 'a'",
    ),
    "a time beyond all calendars": (
        {"payload": pa.array([{"at": 2**60}], pa.struct([("at", pa.timestamp("us"))]))},
        "the payload of job 'one' cannot be written as JSON: date value out of range",
    ),
    "NUL in a key": ({"singleton_key": pa.array(["a\0b"])}, "singleton_key must not hold a NUL"),
    "an empty key": ({"singleton_key": pa.array([""])}, "singleton_key must have 1 to 512 characters"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_cannot_be_jobs_are_named_and_leave_nothing(database: str, case: str) -> None:
    columns, message = BAD_ROWS[case]
    good = {"id": pa.array(["one"]), "payload": pa.array(["1"])}
    one = writer(database)
    bad = pa.RecordBatch.from_pydict(good | columns)
    with pytest.raises(pgjq.ValidationError, match=message):
        one.write(iter([rows(["good"]), bad, rows(["better"])]))
    assert (stages(database), ids(database)) == ([], [])


def test_bad_rows_go_to_quarantine_with_their_reasons_and_the_rest_is_written(
    database: str, caplog: pytest.LogCaptureFixture
) -> None:
    batches = [
        pa.RecordBatch.from_pydict(
            {
                "id": pa.array(["good", None, "no JSON", "x" * 513, "NaN", "better"], pa.string()),
                "payload": pa.array(["1", "2", "{oops", "3", "NaN", '{"a": 1}']),
                "priority": pa.array([1, 1, 1, 1, 1, 1]),
            }
        ),
        pa.RecordBatch.from_pydict(
            {"id": pa.array(["NUL\0", "high"]), "payload": pa.array(["4", "5"]), "priority": pa.array([1, 99_999])}
        ),
        pa.RecordBatch.from_pydict({"id": pa.array(["deep"]), "payload": pa.array(["[" * 50_000 + "]" * 50_000])}),
        pa.RecordBatch.from_pydict({"id": pa.array(["NUL"]), "payload": pa.array(['"a\0b"'])}),
        rows(["last"]),
    ]
    one = writer(database, writeId="w", onBadRow="quarantine")
    lost = one.write(iter(batches))  # Tried twice, and the first try's answer was lost.
    kept = one.write(iter(batches))
    assert (lost.rows, kept.rows) == (3, 3)
    one.commit([kept])
    again = writer(database, writeId="w", onBadRow="quarantine")
    again._made = False
    again.commit([again.write(iter(batches))])
    assert ids(database) == ["good", "better", "last"]
    found = ask(database, "select id, reason from pgjq.quarantine where write_id = 'w' and queue = 'mail'")
    reasons = {None if name is None else name[:7]: reason for name, reason in found}
    assert len(found) == len(reasons) == 8
    for name, said in {
        None: "must not be null", "no JSON": "is not JSON", "xxxxxxx": "1 to 512", "NaN": "is not JSON: .*NaN",
        "NUL\N{REPLACEMENT CHARACTER}": "NUL", "high": "priority must be", "deep": "is not JSON|cannot be stored",
        "NUL": "is not JSON",
    }.items():  # fmt: skip
        assert re.search(said, reasons[name]), (name, reasons[name])
    written = read_written(read_options({"url": database}), "w")
    assert written is not None
    assert (written.jobs, written.duplicates, written.quarantined) == (3, 0, 8)
    assert "8 rows are in pgjq.quarantine: they cannot be jobs (write w)" in caplog.messages
    assert stages(database) == []
    do(database, "update pgjq.quarantine set at = at - interval '31 days'")
    do(database, "select pgjq.drop_old_stages()")
    assert ask(database, "select count(*) from pgjq.quarantine") == [(0,)]
    with pytest.raises(pgjq.ValidationError, match="onBadRow must be fail or quarantine, not 'skip'"):
        writer(database, onBadRow="skip")


def test_a_row_whose_id_was_not_kept_is_named_by_its_number(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "NAMED_BYTES", 0)
    with pytest.raises(pgjq.ValidationError, match="the payload of the job in row 2 of a task is not JSON"):
        writer(database).write(iter([pa.RecordBatch.from_pydict({"id": ["a", "b"], "payload": ["1", "oops"]})]))


def test_a_payload_over_the_limit_is_named() -> None:
    with pytest.raises(pgjq.ValidationError, match="the payload of job 'b' has 11 bytes; 10 is the most"):
        list(staged(iter([pa.RecordBatch.from_pydict({"id": ["a", "b"], "payload": ["1", '"123456789"']})]), limit=10))


BAD_FRAMES = {
    "no payload": ([("id", StringType())], "column 'payload' is missing: a struct, a map, an array or a string"),
    "an id of another type": (
        [("id", LongType()), ("payload", StringType())],
        "column 'id' must be a string, not bigint",
    ),
    "a time without a zone": (
        [("id", StringType()), ("payload", StringType()), ("run_at", TimestampNTZType())],
        "column 'run_at' must be a timestamp with a time zone, not timestamp_ntz",
    ),
    "a column too many": (
        [("id", StringType()), ("payload", StringType()), ("colour", IntegerType())],
        "a job has no column 'colour'; its columns are id, payload",
    ),
}


@pytest.mark.parametrize("case", BAD_FRAMES)
def test_frames_that_cannot_be_jobs_are_named(case: str) -> None:
    columns, message = BAD_FRAMES[case]
    with pytest.raises(pgjq.ValidationError, match=message):
        check_frame(StructType([StructField(*column) for column in columns]))


def test_a_write_needs_a_queue_and_only_adds(database: str) -> None:
    with pytest.raises(pgjq.ValidationError, match="option queue is missing"):
        JobsWriter(read_options({"url": database}), FRAME, overwrite=False)
    with pytest.raises(pgjq.ValidationError, match="use mode"):
        JobsWriter(read_options({"url": database, "queue": "mail"}), FRAME, overwrite=True)


def test_a_write_in_another_schema_with_a_name_that_needs_quoting(empty_database: str) -> None:
    schema = 'Ann\'s "jobs" 100%'
    pgjq.migrate(empty_database, schema=schema)
    one = writer(empty_database, schema=schema)
    one.commit([one.write(iter([rows(["a", "a", "b"])]))])
    storage = pgjq.PostgresStorage(empty_database, schema=schema)
    assert pgjq.Client(storage).get_queue_stats("mail").ready == 2
    storage.close()


def test_a_schema_that_is_older_than_the_code_says_what_to_do(database: str) -> None:
    do(
        database,
        "create or replace function pgjq.schema_version() returns integer language sql immutable return 0",
    )
    try:
        with pytest.raises(pgjq.SchemaError, match="pgjq migrate"):
            writer(database)
    finally:
        do(
            database,
            "create or replace function pgjq.schema_version() returns integer language sql immutable return 1",
        )
