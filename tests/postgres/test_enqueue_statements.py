"""The statements that enqueue: whichever of them adds a job, its rows are the same.

`pgjq.enqueue_job` has statements for a job without settings, `pgjq.add_jobs` for jobs that share their settings, and
the payloads of a batch are sent as one value.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

import pgjq

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS = """
select
    to_jsonb(j) - '{seq,run_at}'::text[] as job, j.run_at = b.created_at as is_due,
    to_jsonb(b) - '{seq,id,created_at}'::text[] as body
from pgjq.job as j inner join pgjq.body as b using (seq, queue_id)
where b.id = %s
"""


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


def enqueue(connection: psycopg.Connection[Any], job_id: str, settings: str) -> Any:
    connection.execute("select pgjq.enqueue_job('mail', %s, '1', %s)", (job_id, settings))
    return connection.execute(ROWS, (job_id,)).fetchone()


@pytest.mark.parametrize(
    ("short", "spelled_out"),
    [("{}", '{"priority": 0}'), ('{"awaited": true}', '{"awaited": true, "priority": 0}')],
)
def test_defaults_are_those_of_job_settings(connection: psycopg.Connection[Any], short: str, spelled_out: str) -> None:
    row = enqueue(connection, "short", short)
    assert row is not None
    assert row == enqueue(connection, "spelled out", spelled_out)


@pytest.mark.parametrize("settings", ["{}", '{"awaited": true}'])
def test_a_job_without_settings_inherits_from_its_queue(
    connection: psycopg.Connection[Any], postgres: pgjq.PostgresStorage, settings: str
) -> None:
    pgjq.Client(postgres).create_queue("mail", retry_limit=6, delete_after_seconds=60)
    job, _, body = enqueue(connection, "a", settings)
    assert (job["max_attempts"], job["delete_after"]) == (7, 60)
    assert body["options"] == {"delete_after_seconds": 60}


@pytest.mark.parametrize("settings", ["{}", '{"awaited": true}', '{"priority": 0}'])
def test_ids_out_of_bounds_are_refused(connection: psycopg.Connection[Any], settings: str) -> None:
    for job_id in ("", "x" * 513):
        with pytest.raises(psycopg.errors.CheckViolation, match="invalid job id or settings"):
            enqueue(connection, job_id, settings)


def test_every_job_of_a_batch_has_its_own_payload(
    connection: psycopg.Connection[Any], postgres: pgjq.PostgresStorage
) -> None:
    payloads = {f"job-{n}": "ä" * n for n in range(50)}
    pgjq.Client(postgres).enqueue_many("mail", payloads.items())
    found = connection.execute("select id, convert_from(payload, 'UTF8') from pgjq.body").fetchall()
    assert {job_id: json.loads(payload) for job_id, payload in found} == payloads


def test_a_batch_with_equal_settings_has_the_rows_of_a_mixed_one(
    connection: psycopg.Connection[Any], postgres: pgjq.PostgresStorage
) -> None:
    client = pgjq.Client(postgres)
    chosen: Any = {"priority": 3, "max_attempts": 5, "result_ttl": 60, "singleton_key": "k", "headers": {"a": "b"}}
    client.enqueue_many("mail", [pgjq.NewJob(job_id, 1, **chosen) for job_id in ("a", "b")])
    client.enqueue_many("mail", [pgjq.NewJob("c", 1, **chosen), pgjq.NewJob("d", 1)])
    a, b, c = (connection.execute(ROWS, (job_id,)).fetchone() for job_id in ("a", "b", "c"))
    assert a is not None
    assert a == b == c
    assert (a[0]["rank"], a[0]["max_attempts"], a[0]["result_ttl"], a[0]["singleton_key"]) == (-3, 5, 60, "k")
    assert a[2]["headers"] == {"a": "b"}


def test_a_batch_with_generated_ids_has_the_rows_of_one_with_the_callers(
    connection: psycopg.Connection[Any], postgres: pgjq.PostgresStorage
) -> None:
    client = pgjq.Client(postgres)
    chosen: Any = {"priority": 3, "delay": 60, "singleton_key": "k", "headers": {"a": "b"}, "retry_delay": 5}
    payload = {"task": "receipt"}
    client.enqueue_many("mail", [pgjq.NewJob(job_id, payload, **chosen) for job_id in ("a", "b")])
    generated = client.enqueue_many("mail", [pgjq.NewJob(None, payload, **chosen) for _ in range(2)])
    a, *others = (connection.execute(ROWS, (job_id,)).fetchone() for job_id in ("a", *(job.id for job in generated)))
    assert a is not None
    assert others == [a, a]
    assert (a[2]["task"], a[2]["headers"], a[1]) == ("receipt", {"a": "b"}, False)


def test_a_batch_whose_payloads_are_larger_than_a_value_may_be_is_added_whole_and_in_order(
    connection: psycopg.Connection[Any], postgres: pgjq.PostgresStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pgjq.storage.postgres.enqueue.PIECE_BYTES", 100)
    client = pgjq.Client(postgres)
    sizes = [10, 90, 300, 1, 1, 98, 101, 50]
    for ids in ([f"job-{n * 7 % len(sizes)}" for n in range(len(sizes))], [None] * len(sizes)):
        results = client.enqueue_many("mail", list(zip(ids, ["x" * size for size in sizes], strict=True)))
        rows = "select length(b.payload) - 2 from pgjq.body as b where b.id = any(%s) order by b.seq"
        found = connection.execute(rows, ([result.id for result in results],)).fetchall()
        assert [size for (size,) in found] == sizes
