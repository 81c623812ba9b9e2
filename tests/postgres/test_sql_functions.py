"""`pgjq.enqueue` for producers in any language: plain SQL, in whatever transaction calls it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Barrier
from typing import TYPE_CHECKING, Any, LiteralString

import psycopg
import pytest
from psycopg.rows import dict_row

import pgjq
from pgjq.blocking import drive
from pgjq.options import LONGEST, JobOptions
from pgjq.outcome import Completed, Failed
from pgjq.retry import retry_delay
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pgjq.outcome import Outcome

REFUSED: dict[str, LiteralString] = {
    "no queue": "select pgjq.enqueue(null, '{}')",
    "an empty queue": "select pgjq.enqueue('', '{}')",
    "a queue that is too long": "select pgjq.enqueue(repeat('q', 129), '{}')",
    "a queue with a line break": r"select pgjq.enqueue(E'a\nb', '{}')",
    "an empty id": "select pgjq.enqueue('mail', '{}', id => '')",
    "an id that is too long": "select pgjq.enqueue('mail', '{}', id => repeat('x', 513))",
    "no payload": "select pgjq.enqueue('mail', null)",
    "a payload that is no JSON": "select pgjq.enqueue('mail', '{')",
    "a negative delay": "select pgjq.enqueue('mail', '{}', delay => -1)",
    "NaN as delay": "select pgjq.enqueue('mail', '{}', delay => 'NaN')",
    "an infinite delay": "select pgjq.enqueue('mail', '{}', delay => 'infinity')",
    "run_at and delay": "select pgjq.enqueue('mail', '{}', delay => 1, run_at => now())",
    "an infinite run_at": "select pgjq.enqueue('mail', '{}', run_at => 'infinity')",
    "a run_at that is infinitely long ago": "select pgjq.enqueue('mail', '{}', run_at => '-infinity')",
    "a result_ttl of 0": "select pgjq.enqueue('mail', '{}', result_ttl => 0)",
    "NaN as result_ttl": "select pgjq.enqueue('mail', '{}', result_ttl => 'NaN')",
    "an infinite result_ttl": "select pgjq.enqueue('mail', '{}', result_ttl => 'infinity')",
    "no attempts": "select pgjq.enqueue('mail', '{}', max_attempts => 0)",
    "too many attempts": "select pgjq.enqueue('mail', '{}', max_attempts => 32768)",
    "a priority that is too high": "select pgjq.enqueue('mail', '{}', priority => 32768)",
    "a priority that is too low": "select pgjq.enqueue('mail', '{}', priority => -32768)",
    "an empty singleton_key": "select pgjq.enqueue('mail', '{}', singleton_key => '')",
    "a singleton_key that is too long": "select pgjq.enqueue('mail', '{}', singleton_key => repeat('k', 513))",
    "a slot that is too short": "select pgjq.enqueue('mail', '{}', singleton_seconds => 0.5)",
    "a dead letter to nowhere": "select pgjq.enqueue('mail', '{}', dead_letter => 'nobody''s')",
    "a dead letter to itself": "select pgjq.enqueue('mail', '{}', dead_letter => 'mail')",
    "headers that are no object": "select pgjq.enqueue('mail', '{}', headers => '[]')",
    "a header that is no text": "select pgjq.enqueue('mail', '{}', headers => '{\"a\": 1}')",
    "a header without a name": "select pgjq.enqueue('mail', '{}', headers => '{\"\": \"a\"}')",
    "headers that are too long": (
        "select pgjq.enqueue('mail', '{}', headers => jsonb_build_object('a', repeat('x', 8192)))"
    ),
    "too many headers": (
        "select pgjq.enqueue('mail', '{}', headers => (select jsonb_object_agg(n, '') from generate_series(1, 65) as n))"  # noqa: E501
    ),
    "an option that does not exist": "select pgjq.enqueue('mail', '{}', prioritty => 1)",
}


@pytest.fixture
def connection(database: str) -> Iterator[psycopg.Connection[dict[str, Any]]]:
    connection = psycopg.connect(database, row_factory=dict_row)
    yield connection
    connection.close()


def call(connection: psycopg.Connection[dict[str, Any]], arguments: LiteralString) -> dict[str, Any]:
    """Call the function and return its answer."""
    row = connection.execute("select * from pgjq.enqueue(" + arguments + ")").fetchone()  # noqa: S608
    assert row is not None
    return row


def claim(storage: pgjq.PostgresStorage) -> list[Any]:
    return drive(storage.operations("sync").claim(["mail"], worker="w", limit=10, policy=pgjq.LeasePolicy()))


def end_everything(storage: pgjq.PostgresStorage, outcome: Outcome) -> None:
    drive(storage.operations("sync").settle([Settlement(job.lease, outcome) for job in claim(storage)]))


def test_what_sql_enqueues_the_client_reads_and_a_worker_runs(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    answer = call(connection, "'mail', '{\"to\": \"änn\", \"n\": [1, 2.5, null]}', id => 'welcome-7'")
    connection.commit()
    assert answer == {"job_id": "welcome-7", "status": "queued", "existing_state": None, "result": None}
    status = pgjq.Client(postgres).get_status("mail", "welcome-7")
    assert status is not None
    assert (status.state, status.priority, status.max_attempts) == ("queued", 0, 3)
    (claimed,) = claim(postgres)
    assert json.loads(claimed.payload) == {"to": "änn", "n": [1, 2.5, None]}


def test_every_argument_reaches_the_job(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(
        connection,
        "'mail', '1', id => 'one', priority => 9, run_at => '2030-01-01 00:00+00', max_attempts => 5, "
        "singleton_key => 'k'",
    )
    call(connection, "'mail', '1', id => 'two', delay => 90")
    connection.commit()
    statuses = pgjq.Client(postgres).get_statuses("mail", ["one", "two"])
    one, two = statuses["one"], statuses["two"]
    assert (one.priority, one.max_attempts, one.singleton_key) == (9, 5, "k")
    assert one.run_at == datetime(2030, 1, 1, tzinfo=UTC)
    assert two.run_at is not None
    assert (two.run_at - two.created_at).total_seconds() == 90


def test_an_id_is_made_when_none_is_given(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    made = [call(connection, "'mail', '1'")["job_id"] for _ in range(3)]
    connection.commit()
    assert len(set(made)) == 3
    assert set(pgjq.Client(postgres).get_statuses("mail", made)) == set(made)


def test_a_job_is_there_if_and_only_if_the_transaction_commits(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', '1', id => 'withdrawn'")
    connection.rollback()
    call(connection, "'mail', '1', id => 'kept'")
    assert pgjq.Client(postgres).get_status("mail", "kept") is None
    connection.commit()
    assert [job.id for job in pgjq.Client(postgres).find_jobs()] == ["kept"]


def test_a_job_of_a_savepoint_that_is_rolled_back_is_not_there(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', '1', id => 'kept'")
    with connection.transaction(force_rollback=True):
        call(connection, "'mail', '1', id => 'withdrawn'")
    connection.commit()
    assert [job.id for job in pgjq.Client(postgres).find_jobs()] == ["kept"]


def test_a_query_enqueues_a_job_for_each_of_its_rows(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    rows = connection.execute(
        "select e.status from generate_series(1, 5) as n, pgjq.enqueue('mail', to_jsonb(n), id => n::text) as e"
    )
    assert [row["status"] for row in rows] == ["queued"] * 5
    connection.commit()
    assert sorted(json.loads(job.payload) for job in claim(postgres)) == [1, 2, 3, 4, 5]


def test_a_trigger_enqueues_with_the_row_that_it_fires_for(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    connection.execute(
        """
        create temporary table account (id integer, mail text);
        create function pg_temp.welcome() returns trigger language plpgsql as $$
        begin
            perform pgjq.enqueue('mail', jsonb_build_object('to', new.mail), id => 'welcome-' || new.id);
            return new;
        end $$;
        create trigger welcome after insert on account for each row execute function pg_temp.welcome();
        insert into account values (7, 'ann@example.org');
        """
    )
    connection.commit()
    assert pgjq.Client(postgres).get_status("mail", "welcome-7") is not None


def test_an_id_that_the_client_took_is_answered(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    pgjq.Client(postgres).enqueue("mail", "one", "from the client")
    answer = call(connection, "'mail', '1', id => 'one'")
    assert (answer["status"], answer["existing_state"]) == ("duplicate", "queued")
    connection.commit()
    claim(postgres)
    answer = call(connection, "'mail', '1', id => 'one'")
    assert (answer["status"], answer["existing_state"]) == ("duplicate", "processing")


def test_an_id_that_sql_took_is_answered_to_the_client(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', '1', id => 'one'")
    connection.commit()
    assert pgjq.Client(postgres).enqueue("mail", "one", 2) == pgjq.EnqueueResult("duplicate", "one", "queued")


def test_the_same_id_in_another_queue_is_free(connection: psycopg.Connection[dict[str, Any]]) -> None:
    assert call(connection, "'mail', '1', id => 'one'")["status"] == "queued"
    assert call(connection, "'post', '1', id => 'one'")["status"] == "queued"


def test_a_cached_result_is_the_answer(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', '1', id => 'one'")
    connection.commit()
    end_everything(postgres, Completed(b'{"sent": true}'))
    expected = {"status": "completed", "existing_state": "completed", "result": b'{"sent": true}'}
    assert call(connection, "'mail', '2', id => 'one'") == {"job_id": "one", **expected}


def test_the_time_to_live_of_the_first_accepted_enqueue_decides_how_long_an_id_is_taken(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', '1', id => 'one', result_ttl => 60")
    connection.commit()
    end_everything(postgres, Completed(b"7"))
    move_clock(connection, 59)
    assert call(connection, "'mail', '2', id => 'one', result_ttl => 1")["status"] == "completed"
    move_clock(connection, 61)
    assert call(connection, "'mail', '2', id => 'one'")["status"] == "queued"
    connection.rollback()


def move_clock(connection: psycopg.Connection[dict[str, Any]], seconds: int) -> None:
    connection.execute(
        f"""
        create or replace function pgjq.now() returns timestamptz language sql stable parallel safe
        as $$ select statement_timestamp() + interval '{seconds} seconds' $$
        """.encode()
    )


def test_a_failed_id_runs_again(connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage) -> None:
    call(connection, "'mail', '\"old\"', id => 'one'")
    connection.commit()
    end_everything(postgres, Failed(pgjq.JobError("ValueError", "no")))
    assert call(connection, "'mail', '\"new\"', id => 'one'")["status"] == "queued"
    connection.commit()
    assert [job.payload for job in claim(postgres)] == [b'"new"']


@pytest.mark.parametrize("what", REFUSED)
def test_bad_arguments_are_refused(what: str, connection: psycopg.Connection[dict[str, Any]]) -> None:
    with pytest.raises((psycopg.errors.IntegrityError, psycopg.DataError, psycopg.ProgrammingError)):
        connection.execute(REFUSED[what])
    connection.rollback()
    assert connection.execute("select from pgjq.body union all select from pgjq.queue").rowcount == 0


@pytest.mark.parametrize("argument", ["delay => 1e12", "delay => 1e300", "result_ttl => 1e12", "result_ttl => 1e300"])
def test_a_duration_longer_than_any_deployment_does_no_harm(
    argument: LiteralString, connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', '1', id => 'one', " + argument)
    connection.commit()
    end_everything(postgres, Completed(b"7"))
    assert pgjq.Client(postgres).get_status("mail", "one") is not None


def test_refusals_say_what_would_do(connection: psycopg.Connection[dict[str, Any]]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation, match="id must have 1 to 512 characters"):
        connection.execute("select pgjq.enqueue('mail', '{}', id => '')")


def test_jsons_null_is_a_payload(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    call(connection, "'mail', 'null'")
    connection.commit()
    assert [job.payload for job in claim(postgres)] == [b"null"]


def test_twenty_sessions_at_once_enqueue_one_id_and_one_of_them_gets_it(database: str) -> None:
    together = Barrier(20)

    def enqueue(_: int) -> str:
        with psycopg.connect(database, row_factory=dict_row) as connection:
            together.wait()
            return call(connection, "'mail', '1', id => 'same'")["status"]

    with ThreadPoolExecutor(20) as threads:
        assert sorted(threads.map(enqueue, range(20))) == ["duplicate"] * 19 + ["queued"]


def test_sql_throttles_and_names_dead_letters_as_the_client_does(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    assert call(connection, "'mail', '1', singleton_seconds => 3600")["status"] == "queued"
    assert call(connection, "'mail', '1', singleton_seconds => 3600")["status"] == "duplicate"
    later = call(connection, "'mail', '1', singleton_seconds => 3600, singleton_next_slot => true")
    call(connection, "'letters', '1', id => 'here'")
    call(connection, "'mail', '1', id => 'dead', dead_letter => 'letters'")
    connection.commit()
    status = pgjq.Client(postgres).get_status("mail", later["job_id"])
    assert status is not None
    assert status.run_at is not None
    assert status.run_at > status.created_at
    end_everything(postgres, Failed(pgjq.JobError("ValueError", "no")))
    assert [job.source and job.source.id for job in pgjq.Client(postgres).find_jobs("letters")] == [None, "dead"]


@pytest.mark.parametrize("retry", [1, 2, 15, 16, 17])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"retry_delay": 7, "retry_delay_max": 3},
        {"retry_backoff": True},
        {"retry_backoff": True, "retry_delay": 0},
        {"retry_backoff": True, "retry_delay": 5, "retry_delay_max": 9},
        {"retry_backoff": True, "retry_delay": LONGEST},
    ],
)
def test_sql_and_python_delay_retries_alike(
    connection: psycopg.Connection[dict[str, Any]], options: dict[str, Any], retry: int
) -> None:
    row = connection.execute("select pgjq.retry_delay(%s, %s) as delay", [json.dumps(options), retry]).fetchone()
    assert row is not None
    least, most = (retry_delay(JobOptions(**options), retry, chance) for chance in (0, 1))
    assert least <= row["delay"] <= most


def test_a_subscriber_hears_of_what_sql_enqueues(
    connection: psycopg.Connection[dict[str, Any]], postgres: pgjq.PostgresStorage
) -> None:
    subscription = drive(postgres.operations("sync").subscribe("mail"))
    call(connection, "'mail', '1', id => 'one'")
    connection.commit()
    assert [(event.name, event.id) for event in drive(subscription.next(30))] == [("queued", "one")]
    drive(subscription.close())


def test_a_payload_names_its_task(connection: psycopg.Connection[dict[str, Any]], database: str) -> None:
    payloads = {
        '{"task": "receipt", "args": [7]}': "receipt",
        '{"task": 7}': None,
        '{"task": ""}': None,
        r'{"task": "a\nb"}': None,
        '{"args": [7]}': None,
        '["task"]': None,
        json.dumps({"task": "x" * 128}): "x" * 128,
        json.dumps({"task": "x" * 129}): None,
    }
    for number, payload in enumerate(payloads):
        connection.execute(
            "select pgjq.enqueue('mail', %s::jsonb, id => %s, headers => %s::jsonb)",
            (payload, str(number), '{"a": "b"}' if number else None),
        )
    connection.commit()
    with pgjq.Client(pgjq.PostgresStorage(database)) as client:
        found = client.get_statuses("mail", [str(number) for number in range(len(payloads))])
    assert [found[str(number)].task for number in range(len(payloads))] == list(payloads.values())
    assert [found[str(number)].headers for number in range(2)] == [None, {"a": "b"}]
