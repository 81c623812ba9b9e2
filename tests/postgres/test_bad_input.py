"""Bad input: each a clear error of the tree, before anything is written, and the caller's transaction stays usable."""

from __future__ import annotations

import asyncio
import socket
from contextlib import closing
from datetime import UTC, date, datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

import pgjq
from pgjq.embedded import EmbeddedServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NAN, INFINITY = float("nan"), float("inf")
NAIVE = datetime(2030, 1, 1)  # noqa: DTZ001  (that it is naive is the point)
AWARE = datetime(2030, 1, 1, tzinfo=UTC)

circular: list[Any] = []
circular.append(circular)

# What is wrong, and what the message says about it.
ENQUEUES: dict[str, tuple[dict[str, Any], str]] = {
    "an empty id": ({"id": ""}, "must not be empty; pass None for a generated id"),
    "an id that is too long": ({"id": "x" * 513}, "must not be longer than 512 characters; this one has 513"),
    "an id with NUL": ({"id": "a\0b"}, "must not hold a NUL"),
    "an id with a lone surrogate": ({"id": "a\ud800"}, "valid Unicode"),
    "an id that is a number": ({"id": 7}, "must be a str, not int"),
    "an id that is bytes": ({"id": b"seven"}, "must be a str, not bytes"),
    "an empty queue": ({"queue": ""}, "1 to 128 characters"),
    "a queue that is too long": ({"queue": "q" * 129}, "1 to 128 characters; this one has 129"),
    "a queue with NUL": ({"queue": "a\0"}, "control characters"),
    "a queue with a line break": ({"queue": "a\nb"}, "control characters"),
    "a queue with a lone surrogate": ({"queue": "\udfff"}, "lone surrogates"),
    "a queue that is no name": ({"queue": None}, "must be a str, not NoneType"),
    "a set as payload": ({"payload": {1, 2}}, r"payload of job 'one' cannot be serialised by JsonSerde: .*set"),
    "NaN as payload": ({"payload": {"x": NAN}}, "payload of job 'one' cannot be serialised"),
    "a circular payload": ({"payload": circular}, "payload of job 'one' cannot be serialised"),
    "a payload with a lone surrogate": ({"payload": "\ud800"}, "payload of job 'one' cannot be serialised"),
    "a payload that is an object": ({"payload": object()}, "payload of job 'one' cannot be serialised"),
    "a negative delay": ({"delay": -0.001}, "delay must be at least 0"),
    "a negative timedelta as delay": ({"delay": timedelta(seconds=-1)}, "delay must be at least 0"),
    "NaN as delay": ({"delay": NAN}, "delay must be finite"),
    "an infinite delay": ({"delay": INFINITY}, "delay must be finite"),
    "text as delay": ({"delay": "5"}, "delay must be a number of seconds or a timedelta, not str"),
    "a naive datetime": ({"run_at": NAIVE}, "run_at must have a time zone"),
    "a date": ({"run_at": date(2030, 1, 1)}, "run_at must be a datetime, not date"),
    "text as run_at": ({"run_at": "2030-01-01T00:00:00Z"}, "run_at must be a datetime, not str"),
    "run_at and delay": ({"run_at": AWARE, "delay": 5}, "pass run_at or delay, not both"),
    "run_at and a delay of nothing": ({"run_at": AWARE, "delay": 0}, "pass run_at or delay, not both"),
    "an unknown option": ({"prioritty": 5}, "unknown option prioritty; the options are .*priority"),
    "a priority that is too high": ({"priority": 32_768}, "priority must be between -32767 and 32767"),
    "a priority that is too low": ({"priority": -32_768}, "priority must be between -32767 and 32767"),
    "a fraction as priority": ({"priority": 1.5}, "priority must be a whole number, not float"),
    "True as priority": ({"priority": True}, "priority must be a whole number, not bool"),
    "no priority": ({"priority": None}, "priority must be a whole number, not NoneType"),
    "a result_ttl of 0": ({"result_ttl": 0}, "result_ttl must be more than 0"),
    "a negative result_ttl": ({"result_ttl": -1}, "result_ttl must be more than 0"),
    "NaN as result_ttl": ({"result_ttl": NAN}, "result_ttl must be finite"),
    "an infinite result_ttl": ({"result_ttl": INFINITY}, "result_ttl must be finite"),
    "text as result_ttl": ({"result_ttl": "60"}, "result_ttl must be a number of seconds or a timedelta, not str"),
    "True as result_ttl": ({"result_ttl": True}, "result_ttl must be a number of seconds or a timedelta, not bool"),
    "no attempts": ({"max_attempts": 0}, "max_attempts must be between 1 and 32767"),
    "half an attempt": ({"max_attempts": 0.5}, "max_attempts must be a whole number"),
    "attempts that disagree": ({"max_attempts": 3, "retry_limit": 3}, "max_attempts is retry_limit \\+ 1"),
    "a negative retry_limit": ({"retry_limit": -1}, "retry_limit must be between 0"),
    "a negative retry_delay": ({"retry_delay": -1}, "retry_delay must be at least 0"),
    "text as retry_backoff": ({"retry_backoff": "yes"}, "retry_backoff must be True or False"),
    "1 as retry_backoff": ({"retry_backoff": 1.0}, "retry_backoff must be True or False"),
    "a negative retry_delay_max": ({"retry_delay_max": -1}, "retry_delay_max must be at least 0"),
    "an expiry of nothing": ({"expire_in_seconds": 0.99}, "expire_in_seconds must be at least 1"),
    "a heartbeat below ten": ({"heartbeat_seconds": 9.99}, "heartbeat_seconds must be at least 10"),
    "a retention below one": ({"retention_seconds": 0.99}, "retention_seconds must be at least 1"),
    "a negative delete_after": ({"delete_after_seconds": -1}, "delete_after_seconds must be at least 0"),
    "an empty singleton_key": ({"singleton_key": ""}, "singleton_key must be a str of 1 to 512"),
    "a singleton_key with NUL": ({"singleton_key": "\0"}, "singleton_key must be a str .* without NUL"),
    "an unknown on_failed": ({"on_failed": "ignore"}, 'on_failed must be "enqueue" or "duplicate"'),
}
CONNECTIONS = {
    "a server that is not there": (lambda _: f"postgresql://127.0.0.1:{free_port()}/none", "refused"),
    "a database that is not there": (lambda known: make_conninfo(known, dbname="no such database"), "does not exist"),
    "a role that is not there": (lambda known: make_conninfo(known, user="no such role"), "no such role"),
}

every_mode = pytest.mark.parametrize("mode", ["sync", "async"])


def free_port() -> int:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        return unheard.getsockname()[1]


def enqueue(mode: str, storage: Any, arguments: dict[str, Any]) -> None:
    """Enqueue a good job but for what the arguments say."""
    given = {"queue": "mail", "id": "one", "payload": 1, **arguments}
    if mode == "sync":
        pgjq.Client(storage).enqueue(**given)
    else:
        asyncio.run(pgjq.AsyncClient(storage).enqueue(**given))


def is_untouched(conninfo: str) -> bool:
    with psycopg.connect(conninfo) as connection:
        return connection.execute("select from pgjq.body union all select from pgjq.queue").rowcount == 0


@pytest.mark.parametrize("what", ENQUEUES)
def test_a_bad_job_is_refused_before_anything_is_written_and_leaves_the_callers_transaction_usable(
    what: str, postgres: pgjq.PostgresStorage
) -> None:
    arguments, message = ENQUEUES[what]
    with pytest.raises(pgjq.ValidationError, match=message):
        enqueue("async", postgres, arguments)
    with psycopg.connect(postgres.conninfo) as connection:
        connection.execute("create temporary table mine (n integer)")
        with pytest.raises(pgjq.ValidationError, match=message):
            enqueue("sync", postgres, {**arguments, "connection": connection})
        connection.execute("insert into mine values (1)")
        connection.commit()
        written = "select from mine union all select from pgjq.body union all select from pgjq.queue"
        assert connection.execute(written).rowcount == 1


@pytest.mark.parametrize(
    ("jobs", "message"),
    [
        ([("good", 1), ("", 2)], "must not be empty"),
        ([("good", 1), ("bad", {1})], "payload of job 'bad'"),
        ([("good", 1), pgjq.NewJob("bad", 1, delay=-1)], "delay must be at least 0"),
        ([("good", 1), ("id", "payload", "more")], r"NewJob, a Call or a pair \(id, payload\)"),
        ([("good", 1), "no job"], r"NewJob, a Call or a pair \(id, payload\)"),
        ([("good", 1), None], r"NewJob, a Call or a pair \(id, payload\)"),
        ([(None, 1), (None, NAN)], "cannot be serialised"),
    ],
)
@every_mode
def test_one_bad_job_keeps_the_whole_batch_out(
    mode: str, jobs: list[Any], message: str, postgres: pgjq.PostgresStorage
) -> None:
    many = enqueue_many if mode == "sync" else enqueue_many_async
    with pytest.raises(pgjq.ValidationError, match=message):
        many(postgres, jobs)
    assert is_untouched(postgres.conninfo)


def enqueue_many(storage: Any, jobs: list[Any]) -> None:
    pgjq.Client(storage).enqueue_many("mail", jobs)


def enqueue_many_async(storage: Any, jobs: list[Any]) -> None:
    asyncio.run(pgjq.AsyncClient(storage).enqueue_many("mail", jobs))


@pytest.mark.parametrize(
    "zone", [timedelta(hours=14), timedelta(hours=-12), timedelta(hours=1, seconds=7), timedelta(microseconds=1)]
)
def test_the_moment_that_a_job_runs_at_is_the_same_in_every_zone(
    zone: timedelta, postgres: pgjq.PostgresStorage
) -> None:
    run_at = AWARE.replace(tzinfo=timezone(zone))
    pgjq.Client(postgres).enqueue("mail", "one", 1, run_at=run_at)
    status = pgjq.Client(postgres).get_status("mail", "one")
    assert status is not None
    assert status.run_at == run_at


@pytest.mark.parametrize("session", ["Pacific/Kiritimati", "UTC", "America/Los_Angeles"])
@pytest.mark.parametrize("zone", [timedelta(hours=14), timedelta(0), timedelta(hours=-12)])
@pytest.mark.parametrize("end", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_the_ends_of_time_are_refused_or_can_be_read_back(
    end: datetime, zone: timedelta, session: str, database: str
) -> None:
    run_at = end.replace(tzinfo=timezone(zone))
    with closing(pgjq.PostgresStorage(make_conninfo(database, options=f"-c timezone={session}"))) as storage:
        try:
            pgjq.Client(storage).enqueue("mail", "one", 1, run_at=run_at)
        except pgjq.ValidationError:
            return
        assert pgjq.Client(storage).get_status("mail", "one") is not None


@pytest.mark.parametrize(
    ("method", "arguments"),
    [
        ("get_status", ("mail", "")),
        ("get_statuses", ("mail", ["good", "a\0"])),
        ("get_result", ("", "one")),
        ("cancel", ("mail", None)),
        ("retry", ("mail", "x" * 513)),
        ("delete_job", ("mail", "\ud800")),
        ("get_queue_stats", ("a\nb",)),
        ("find_jobs", ("",)),
    ],
)
@every_mode
def test_bad_names_are_refused_by_every_method(
    mode: str, method: str, arguments: tuple[Any, ...], postgres: pgjq.PostgresStorage
) -> None:
    call = getattr(pgjq.Client(postgres), method) if mode == "sync" else awaited(pgjq.AsyncClient(postgres), method)
    with pytest.raises(pgjq.ValidationError, match="must"):
        call(*arguments)


def awaited(client: pgjq.AsyncClient, method: str) -> Any:
    return lambda *arguments: asyncio.run(getattr(client, method)(*arguments))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"state": "running"}, "state must be one of queued, processing"),
        ({"state": ["queued"]}, "state must be one of queued, processing"),
        ({"created_before": NAIVE}, "created_before must have a time zone"),
        ({"created_after": "today"}, "created_after must be a datetime"),
        ({"limit": 0}, "limit must be between 1 and"),
        ({"limit": 10**9}, "limit must be between 1 and"),
        ({"after": -1}, "after must be between 0 and"),
        ({"singleton_key": "\0"}, "singleton_key must be a str"),
        ({"singleton_key": 5}, "singleton_key must be a str"),
    ],
)
def test_a_bad_search_is_refused(wanted: dict[str, Any], message: str, postgres: pgjq.PostgresStorage) -> None:
    with pytest.raises(pgjq.ValidationError, match=message):
        pgjq.Client(postgres).find_jobs("mail", **wanted)


@pytest.mark.parametrize(
    "url", ["mysql://localhost/jobs", "nonsense", "", "/a/path", "host=localhost", "postgresql://[::1", None, 5]
)
def test_an_unknown_storage_url_is_refused_with_a_list_of_those_that_are_known(url: Any) -> None:
    with pytest.raises(pgjq.ValidationError, match=r"URL"):
        pgjq.open_storage(url)


def test_the_error_about_an_unknown_scheme_names_it_and_those_that_are_known() -> None:
    with pytest.raises(pgjq.ValidationError, match=r"unknown storage 'mysql': .*postgresql://.*memory:.*embedded:"):
        pgjq.open_storage("mysql://localhost/jobs")


@pytest.mark.parametrize("url", ["embedded://database", "embedded:database", "embedded:///tmp/a?b"])
def test_a_directory_that_is_not_named_in_full_is_refused(url: str) -> None:
    with pytest.raises(pgjq.ValidationError, match=r"a directory (is named with three slashes|has no options)"):
        pgjq.open_storage(url)


@pytest.mark.parametrize("storage", [None, "postgresql://", 5])
def test_a_client_of_something_else_is_refused_with_an_example(storage: Any) -> None:
    with pytest.raises(pgjq.ValidationError, match="storage must be a storage, such as open_storage"):
        pgjq.Client(storage)


@pytest.mark.parametrize("conninfo", [None, 5, "nonsense", "postgresql://host/db?no_such_parameter=1"])
def test_a_connection_string_that_is_none_is_refused(conninfo: Any) -> None:
    with pytest.raises(pgjq.ValidationError, match="connection string"):
        pgjq.Client(pgjq.PostgresStorage(conninfo)).enqueue("mail", "one", 1)
    with pytest.raises(pgjq.ValidationError, match="connection string"):
        pgjq.migrate(conninfo)


@pytest.mark.parametrize("rest", ["zecret@[x", "zecret@[::1]x", "%zecret@x", "zecret@x:y"])
def test_what_is_wrong_with_a_connection_string_is_said_without_its_password(rest: str) -> None:
    with pytest.raises(pgjq.ValidationError, match="not a PostgreSQL connection string") as refused:
        pgjq.migrate(f"postgresql://me:{rest}")
    assert "zecret" not in str(refused.value)


@pytest.mark.parametrize(("min_size", "max_size"), [(-1, 5), (0, 0), (5, 4), (1, "many"), (1.5, 5)])
def test_sizes_of_a_pool_that_cannot_be_are_refused(min_size: Any, max_size: Any) -> None:
    with pytest.raises(pgjq.ValidationError, match=r"(min|max)_size must be"):
        pgjq.PostgresStorage("postgresql://", min_size=min_size, max_size=max_size)


@pytest.mark.parametrize("what", CONNECTIONS)
@every_mode
def test_what_cannot_be_connected_to_is_storage_unavailable_at_once(mode: str, what: str, server: str) -> None:
    make, message = CONNECTIONS[what]
    with closing(pgjq.PostgresStorage(make(server))) as storage:
        with pytest.raises(pgjq.StorageUnavailableError, match=message) as caught:
            enqueue(mode, storage, {})
        assert isinstance(caught.value.__cause__, psycopg.OperationalError)


def test_a_server_that_is_not_there_leaves_the_callers_transaction_usable(database: str) -> None:
    nowhere = f"postgresql://127.0.0.1:{free_port()}/none"
    with closing(pgjq.PostgresStorage(nowhere)) as storage, psycopg.connect(database) as connection:
        connection.execute("create temporary table mine ()")
        with pytest.raises(pgjq.StorageUnavailableError):
            enqueue("sync", storage, {"connection": connection})
        connection.execute("select from mine")


@pytest.fixture(scope="module")
def server_with_passwords(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    """A server that asks the role `ann` for her password."""
    directory: Path = tmp_path_factory.mktemp("passwords")
    with EmbeddedServer.start(directory) as server, psycopg.connect(server.conninfo, autocommit=True) as connection:
        connection.execute("create role ann login password 'correct horse'")
        rules = directory / "data" / "pg_hba.conf"
        rules.write_text("local all ann scram-sha-256\n" + rules.read_text())
    with EmbeddedServer.start(directory) as server:
        yield server


@every_mode
def test_a_wrong_password_is_an_error_at_once_that_does_not_repeat_it(
    mode: str, server_with_passwords: EmbeddedServer
) -> None:
    conninfo = make_conninfo(server_with_passwords.conninfo, user="ann", password="battery staple")
    with closing(pgjq.PostgresStorage(conninfo)) as storage:
        with pytest.raises(pgjq.StorageUnavailableError, match="password authentication failed") as caught:
            enqueue(mode, storage, {})
        assert "battery" not in str(caught.value)
    with pytest.raises(pgjq.StorageUnavailableError, match="password authentication failed"):
        pgjq.migrate(conninfo)


def test_the_right_password_gets_one_in(server_with_passwords: EmbeddedServer) -> None:
    conninfo = make_conninfo(server_with_passwords.conninfo, user="ann", password="correct horse")
    with closing(pgjq.PostgresStorage(conninfo)) as storage, pytest.raises(pgjq.SchemaError, match="pgjq migrate"):
        enqueue("sync", storage, {})


def test_a_closed_storage_says_so(postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "one", 1)
    postgres.close()
    with pytest.raises(pgjq.StorageError, match="closed"):
        pgjq.Client(postgres).enqueue("mail", "two", 1)
