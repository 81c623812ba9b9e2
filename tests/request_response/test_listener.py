"""The listening connection: cut, silent, pooled. A waiter gets its answer all the same."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import Client, Job, LeasePolicy, PostgresStorage, Queue, StorageUnavailableError, UnsupportedError
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from pgjq.storage.mailbox import Mailbox
from pgjq.storage.postgres import listen_connection, listener, mailboxes
from tests.pgbouncer import pgbouncer
from tests.request_response.conftest import serving, until
from tests.worker.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LISTENERS = """
    select pid from pg_stat_activity where application_name = 'pgjq listener' and datname = current_database()
"""
LOCKS = """
    select from pg_locks
    where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())
"""


@pytest.fixture
def operator(database: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database, autocommit=True) as connection:
        yield connection


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Probe so often that a test need not wait for it."""
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.1)
    monkeypatch.setattr(listen_connection, "ANSWER_SECONDS", 0.2)


def test_it_is_given_up_within_fifteen_seconds() -> None:
    assert listener.PROBE_SECONDS + listen_connection.ANSWER_SECONDS + listener.RECONNECT_SECONDS < 15


def test_a_waiter_whose_connection_was_cut_reads_what_it_missed(
    database: str, postgres: PostgresStorage, operator: psycopg.Connection[Any]
) -> None:
    """The job ends after the connection was cut and before there is another one."""
    far = PostgresStorage(database)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(Queue("q", storage=far).enqueue_and_wait, "a", 1, timeout=60)
        until(lambda: Client(postgres).get_status("q", "a"))
        ((pid,),) = operator.execute(LISTENERS).fetchall()
        operator.execute("select pg_terminate_backend(%s, 5000)", [pid])
        with serving(postgres, lambda job: job.payload) as queue:
            until(lambda: queue.get_status("a").state == "completed")  # type: ignore[union-attr]
            assert asking.result() == 1
    far.close()


@pytest.mark.usefixtures("impatient")
def test_a_network_that_goes_silent_is_noticed(database: str, postgres: PostgresStorage) -> None:
    """Nothing tells that the connection is dead but that its peer does not answer; the answer is read anew then."""
    with Proxy(database) as proxy:
        far = PostgresStorage(proxy.conninfo)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(Queue("q", storage=far).enqueue_and_wait, "a", 1, timeout=60)
            until(lambda: Client(postgres).get_status("q", "a"))
            first = far._listener._connection
            proxy.silence()
            until(lambda: far._listener._connection is not first)
            with serving(postgres, lambda job: job.payload) as queue:
                until(lambda: queue.get_status("a").state == "completed")  # type: ignore[union-attr]
            proxy.restore()
            assert asking.result() == 1
        far.close()


@pytest.mark.usefixtures("impatient")
def test_those_who_want_to_listen_on_a_silent_network_do_not_hang(database: str) -> None:
    with Proxy(database) as proxy:
        far = PostgresStorage(proxy.conninfo)
        box: Mailbox[str | None] = Mailbox("sync")
        with Client(far) as client, client.subscribe("q"):
            proxy.silence()
            far._listener.subscribe(mailboxes.Topic(mailboxes.WAKE, "another"), box)
            proxy.restore()
            assert mailboxes.RESYNC in drive(box.take(60)), "the listener has connected again"


def test_a_waiter_survives_that_its_job_cannot_be_looked_at_for_a_while(
    database: str, postgres: PostgresStorage
) -> None:
    """Every connection is cut and none is let through, until after the job has ended."""
    with Proxy(database) as proxy:
        far = PostgresStorage(proxy.conninfo)
        with ThreadPoolExecutor(1) as pool:
            asking = pool.submit(Queue("q", storage=far).enqueue_and_wait, "a", 1, timeout=60)
            until(lambda: Client(postgres).get_status("q", "a"))
            proxy.refuse()
            with serving(postgres, lambda job: job.payload) as queue:
                until(lambda: queue.get_status("a").state == "completed")  # type: ignore[union-attr]
            proxy.restore()
            assert asking.result() == 1
        far.close()


def test_asking_a_server_that_is_not_there_is_an_error(database: str) -> None:
    with Proxy(database) as proxy:
        proxy.refuse()
        far = PostgresStorage(proxy.conninfo)
        with pytest.raises(StorageUnavailableError):
            Client(far).enqueue_and_wait("q", "a", 1, timeout=5)
        far.close()


def test_only_jobs_with_waiters_are_notified_of(postgres: PostgresStorage, operator: psycopg.Connection[Any]) -> None:
    """A waiter is there the whole time, and a thousand other jobs end: not one notice is about them."""
    heard: list[str] = []
    operator.execute('listen "pgjq.results"')
    with serving(postgres, lambda job: job.payload) as queue:
        queue.enqueue_many([(f"{n}", n) for n in range(1000)])
        until(lambda: Client(postgres).get_queue_stats("q").completed == 1000)
        assert queue.enqueue_and_wait("asked", 1) == 1
    heard += [notice.payload for notice in operator.notifies(timeout=10, stop_after=1)]
    assert heard == ['[["q", "asked", "completed"]]']


def test_one_notification_covers_a_whole_batch(postgres: PostgresStorage, operator: psycopg.Connection[Any]) -> None:
    ops = postgres.operations("sync")
    client = Client(postgres)
    with ThreadPoolExecutor(50) as pool:
        asking = [pool.submit(client.enqueue_and_wait, "q", f"{n}", n, timeout=60) for n in range(50)]
        until(lambda: client.get_queue_stats("q").queued == 50)
        operator.execute('listen "pgjq.results"')
        jobs = drive(ops.claim(["q"], worker="w", limit=50, policy=LeasePolicy()))
        drive(ops.settle([Settlement(job.lease, Completed(job.payload)) for job in jobs]))
        assert sorted(asked.result() for asked in asking) == list(range(50))
    assert len(list(operator.notifies(timeout=0.1))) == 1


@pytest.mark.parametrize("garbage", ["", "no JSON", "[1]", '[["q", "a"]]', '[{"name": "queued"}]', "{}", "7"])
def test_a_malformed_notification_costs_no_subscriber_an_event(
    postgres: PostgresStorage, operator: psycopg.Connection[Any], garbage: str
) -> None:
    client = Client(postgres)
    with client.subscribe("q") as events, serving(postgres, lambda job: job.payload) as queue:
        for channel in ("results", "events", "wake"):
            operator.execute("select pg_notify(%s, %s)", [f"pgjq.{channel}", garbage])
        assert queue.enqueue_and_wait("a", 1) == 1
        assert [next(events).name for _ in range(3)] == ["queued", "processing", "completed"]


def test_a_clients_own_encoding_costs_no_subscriber_an_event(database: str, operator: psycopg.Connection[Any]) -> None:
    """The server would send notifications in the encoding of the connection string, which is not UTF-8."""
    far = PostgresStorage(f"{database} client_encoding=latin1")
    client = Client(far)
    with client.subscribe("q") as events, serving(far, lambda job: job.payload, block_timeout=30) as queue:
        for channel in ("results", "events", "wake"):
            operator.execute("select pg_notify(%s, %s)", [f"pgjq.{channel}", "über"])
        assert queue.enqueue_and_wait("ü", "☃", timeout=20) == "☃"
        assert [next(events).id for _ in range(3)] == ["ü"] * 3
    far.close()


def test_a_notification_that_is_not_utf_8_is_ignored(
    database: str, operator: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    """The session's encoding is changed behind the listener's back, so that the server sends other bytes."""
    heard: list[tuple[str, str]] = []
    listening = listen_connection.ListenConnection(database, lambda channel, payload: heard.append((channel, payload)))
    listening.ask(b"set client_encoding to 'LATIN1'")
    listening.ask(b"listen x")
    operator.execute("select pg_notify('x', %s)", ["über"])
    operator.execute("select pg_notify('x', 'after')")
    until(lambda: listening.read() or heard)
    listening.close()
    assert heard == [("x", "after")]
    assert [record.getMessage() for record in caplog.records] == ["notification ignored, it is not UTF-8: channel b'x'"]


def test_behind_a_transaction_pooler_answers_are_looked_for(
    database: str, tmp_path: Path, operator: psycopg.Connection[Any], caplog: pytest.LogCaptureFixture
) -> None:
    go = threading.Event()

    def work(job: Job) -> Any:
        go.wait(60)
        return job.payload

    with pgbouncer(database, tmp_path) as conninfo, caplog.at_level(logging.WARNING, "pgjq"):
        pooled = PostgresStorage(conninfo)
        with serving(pooled, work, block_timeout=0.1) as queue, ThreadPoolExecutor(20) as pool:
            asking = [pool.submit(queue.enqueue_and_wait, f"{n}", n, timeout=60) for n in range(20)]
            until(lambda: Client(pooled).get_queue_stats("q").processing == 4)
            go.set()
            assert [asked.result() for asked in asking] == list(range(20))
        with pytest.raises(UnsupportedError, match="transaction pooler"):
            Client(pooled).subscribe()
        # What a session of the pooler's was told would stay with it.
        assert operator.execute(LOCKS).fetchall() == []
        pooled.close()
    assert [r.getMessage()[:48] for r in caplog.records] == ["notifications do not pass a transaction pooler: "]


def test_a_session_that_changes_hands_later_is_found_out(postgres: PostgresStorage, monkeypatch: Any) -> None:
    """As with a pooler that passes the process number on: the next probe is answered by another session."""
    monkeypatch.setattr(listener, "PROBE_SECONDS", 0.05)
    queue = Queue("q", storage=postgres)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(queue.enqueue_and_wait, "a", 1, timeout=60)
        until(lambda: postgres._listener._connection is not None)
        monkeypatch.setattr(listen_connection, "WHO", b"select 'another'")
        until(lambda: postgres._listener.behind_pooler)
        with serving(postgres, lambda job: job.payload):
            assert asking.result() == 1
