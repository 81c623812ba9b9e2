"""Connections are lost: by a killed backend, a silent leader, a restarted listener."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from pgjq import AsyncClient, Client, LeasePolicy, PostgresStorage, StorageUnavailableError
from pgjq.blocking import drive
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement

if TYPE_CHECKING:
    from collections.abc import Callable


SLEEPERS = """
    select from pg_locks
    where locktype = 'advisory' and classid = (hashtext('pgjq.wake')::bigint & 4294967295)::oid
"""


def kill(conninfo: str, application: str, *, waiting_for_a_lock: bool = False) -> int:
    """End the sessions of that name, as an operator or a failover would; return how many there were."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        found = connection.execute(
            "select pg_terminate_backend(pid, 5000) from pg_stat_activity"
            " where application_name = %s and datname = current_database()"
            " and (wait_event_type = 'Lock' or not %s)",
            [application, waiting_for_a_lock],
        ).fetchall()
    return len(found)


def until(holds: Callable[[], Any]) -> Any:
    """Ask until the answer is yes; the suite's time-out is the limit."""
    while not (answer := holds()):
        pass
    return answer


def test_idle_connections_that_were_killed_are_replaced_unnoticed(database: str, postgres: PostgresStorage) -> None:
    client = Client(postgres)
    with ThreadPoolExecutor(5) as pool:
        list(pool.map(lambda n: client.enqueue("q", str(n), n), range(5)))
    assert kill(database, "pgjq") >= 1
    assert client.enqueue("q", "b", 2).status == "queued"


def test_idle_connections_of_a_loop_that_were_killed_are_replaced_unnoticed(database: str) -> None:
    async def outlive() -> str:
        async with AsyncClient(PostgresStorage(database)) as client:
            await client.enqueue("q", "a", 1)
            await asyncio.to_thread(kill, database, "pgjq")
            return (await client.enqueue("q", "b", 1)).status

    assert asyncio.run(outlive()) == "queued"


def test_a_connection_killed_at_work_is_an_error_that_says_so(database: str, postgres: PostgresStorage) -> None:
    """The enqueue waits for a rival's transaction, and is killed there."""
    client = Client(postgres)
    client.enqueue("q", "first", 1)
    with psycopg.connect(database) as rival, ThreadPoolExecutor(1) as pool:
        client.enqueue("q", "a", 1, connection=rival)
        waiting = pool.submit(client.enqueue, "q", "a", 2)
        until(lambda: kill(database, "pgjq", waiting_for_a_lock=True))
        with pytest.raises(StorageUnavailableError, match="terminating connection"):
            waiting.result()
    assert client.enqueue("q", "a", 2).status == "duplicate"


def test_a_lost_answer_to_an_enqueue_is_a_duplicate_the_second_time(database: str, postgres: PostgresStorage) -> None:
    """COMMIT without an answer: the caller tries again with the same id, and the job is there once."""
    client = Client(postgres)
    with psycopg.connect(database) as connection:
        client.enqueue("q", "a", 1, connection=connection)
        connection.execute("commit")
        connection.close()
    assert client.enqueue("q", "a", 1).status == "duplicate"
    assert client.get_queue_stats("q").queued == 1


def test_an_enqueue_whose_transaction_died_leaves_the_id_free(database: str, postgres: PostgresStorage) -> None:
    client = Client(postgres)
    connection = psycopg.connect(database, application_name="doomed")
    client.enqueue("q", "a", 1, connection=connection)
    assert kill(database, "doomed") == 1
    assert client.enqueue("q", "a", 2).status == "queued"
    connection.close()


def test_a_settle_that_lost_its_connection_can_be_made_again(database: str, postgres: PostgresStorage) -> None:
    client, ops = Client(postgres), postgres.operations("sync")
    client.enqueue("q", "a", 1)
    (job,) = drive(ops.claim(["q"], worker="w", limit=1, policy=LeasePolicy()))
    settlement = Settlement(job.lease, Completed(b"1"))
    with psycopg.connect(database) as rival, ThreadPoolExecutor(1) as pool:
        rival.execute("select from pgjq.job for update")
        waiting = pool.submit(lambda: drive(ops.settle([settlement])))
        until(lambda: kill(database, "pgjq", waiting_for_a_lock=True))
        with pytest.raises(StorageUnavailableError):
            waiting.result()
    assert drive(ops.settle([settlement]))[0].state == "completed"


def test_a_subscriber_hears_again_after_its_connection_was_cut(database: str, postgres: PostgresStorage) -> None:
    client, ops = Client(postgres), postgres.operations("sync")
    heard = drive(ops.subscribe())
    client.enqueue("q", "before", 1)
    assert [e.id for e in drive(heard.next(10))] == ["before"]
    assert kill(database, "pgjq listener") == 1
    numbers = iter(range(10_000))
    # Events while nothing listens are lost; events after it listens again are not.
    until(lambda: (client.enqueue("q", f"after {next(numbers)}", 1), drive(heard.next(0.01)))[1])
    drive(heard.close())


def test_a_sleeper_is_woken_to_look_for_itself_when_its_connection_was_cut(
    database: str, postgres: PostgresStorage
) -> None:
    ops = postgres.operations("sync")
    with ThreadPoolExecutor(1) as pool:
        sleeping = pool.submit(lambda: drive(ops.wait_for_work(["q"], 60)))
        with psycopg.connect(database, autocommit=True) as connection:
            until(lambda: connection.execute(SLEEPERS).fetchall())
        assert kill(database, "pgjq listener") == 1
        assert sleeping.result() is True


def test_nobody_listens_after_the_last_one_left(database: str, postgres: PostgresStorage) -> None:
    ops = postgres.operations("sync")
    one, other = drive(ops.subscribe()), drive(ops.subscribe("q"))
    with psycopg.connect(database, autocommit=True) as connection:

        def watched() -> bool:
            row = connection.execute("select pgjq.has_subscribers()").fetchone()
            return bool(row and row[0])

        assert watched()
        drive(one.close())
        assert watched()
        drive(other.close())
        until(lambda: not watched())


def test_a_leader_whose_connection_was_cut_is_out_of_office_and_can_stand_again(
    database: str, postgres: PostgresStorage
) -> None:
    ops = postgres.operations("sync")
    assert drive(ops.elect("reaper", "ann", ttl=30))
    assert kill(database, "pgjq election") == 1
    rival = PostgresStorage(database)
    assert drive(rival.operations("sync").elect("reaper", "bob", ttl=30))
    assert not drive(ops.elect("reaper", "ann", ttl=30))
    rival.close()
    until(lambda: drive(ops.elect("reaper", "ann", ttl=30)))


def test_a_silent_leader_is_out_of_office_when_its_time_is_over(database: str, postgres: PostgresStorage) -> None:
    """The server itself ends the session of a leader that says nothing, stopped or cut off as it may be."""
    assert drive(postgres.operations("sync").elect("reaper", "ann", ttl=0.2))
    rival = PostgresStorage(database)
    until(lambda: drive(rival.operations("sync").elect("reaper", "bob", ttl=30)))
    assert not drive(postgres.operations("sync").elect("reaper", "ann", ttl=0.2))
    rival.close()


def test_a_leader_whose_session_changed_hands_does_not_lead(database: str, postgres: PostgresStorage) -> None:
    """A pooler may hand the lock's session to another client; then the proof fails, and is not trusted."""
    ops: Any = postgres.operations("sync")
    assert drive(ops.elect("reaper", "ann", ttl=30))
    ops._leader_locks._held["reaper"].connection.execute("select pg_advisory_unlock_all()")
    rival = PostgresStorage(database)
    assert drive(rival.operations("sync").elect("reaper", "bob", ttl=30))
    assert not drive(ops.elect("reaper", "ann", ttl=30))
    rival.close()


def test_closing_resigns_at_once(database: str) -> None:
    first, second = PostgresStorage(database), PostgresStorage(database)
    assert drive(first.operations("sync").elect("reaper", "ann", ttl=30))
    first.close()
    until(lambda: drive(second.operations("sync").elect("reaper", "bob", ttl=30)))
    second.close()
