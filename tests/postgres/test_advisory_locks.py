"""Any login can hold an advisory lock that pgjq uses: nothing waits for one without a bound."""

from __future__ import annotations

import asyncio
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import pgjq
from pgjq.blocking import drive
from pgjq.job import JobError
from pgjq.migrate import downgrade
from pgjq.outcome import Failed
from pgjq.storage.base import Settlement
from pgjq.storage.postgres import definitions
from tests.cli.run_command import run
from tests.postgres.conftest import ROLES, execute, new_login

if TYPE_CHECKING:
    from collections.abc import Generator

LIMIT = 30.0
POLICY = pgjq.LeasePolicy(lease=30, heartbeat=None)


@contextmanager
def outsider_holding(server: str, database: str, *locks: tuple[str, str]) -> Generator[None]:
    """Have a login without any right but CONNECT hold advisory locks; calls that wait until it goes fail the test."""
    gone = threading.Event()
    with new_login(server) as who:
        with psycopg.connect(make_conninfo(database, **who), autocommit=True) as connection:
            for lock in locks:
                connection.execute("select pg_advisory_lock(hashtext(%s), hashtext(%s))", lock)
            leaving = threading.Timer(LIMIT, lambda: (gone.set(), connection.close()))
            leaving.start()
            try:
                yield
            finally:
                leaving.cancel()
        assert not gone.is_set(), "a call waited for the lock of an outsider"
        execute(server, "drop role if exists {}", who["user"])


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read", "serializable"])
def test_enqueueing_goes_on_while_an_outsider_holds_the_lock_of_a_queue(
    isolation: str, server: str, postgres: pgjq.PostgresStorage, database: str
) -> None:
    client = pgjq.Client(postgres)
    client.enqueue("mail", "first", 1)
    with outsider_holding(server, database, ("pgjq.queue", "mail"), ("pgjq.queue", "new")):
        assert client.enqueue("mail", "one", 1).status == "queued"
        assert client.enqueue("mail", "one", 1).status == "duplicate"
        assert client.enqueue("new", "one", 1).status == "queued"
        client.enqueue_many("mail", [("two", 1), ("three", 1)])
        client.enqueue_many("mail", [(None, 1)] * 150)
        with psycopg.connect(postgres.conninfo) as connection:
            connection.execute(f"set transaction isolation level {isolation}".encode())
            client.enqueue("mail", "four", 1, connection=connection)
            connection.execute("select pgjq.enqueue('mail', '1', id => 'five')")
        asyncio.run(enqueue_async(postgres, "six"))
    assert len(client.find_jobs("mail", limit=1000)) == 157


async def enqueue_async(storage: pgjq.PostgresStorage, job_id: str) -> None:
    await pgjq.AsyncClient(storage).enqueue("mail", job_id, 1)
    await storage.operations("async").close()


def test_a_failed_job_is_settled_and_reaped_while_an_outsider_holds_the_lock_of_its_dead_letter_queue(
    server: str, postgres: pgjq.PostgresStorage, database: str
) -> None:
    client, ops = pgjq.Client(postgres), postgres.operations("sync")
    client.create_queue("dead")
    client.create_queue("mail", dead_letter="dead", retry_limit=0)
    client.enqueue_many("mail", [("settled", 1), ("reaped", 1)])
    one, two = drive(ops.claim(["mail"], worker="w", limit=2, policy=POLICY))
    execute(database, "update pgjq.job set locked_until = now() where seq = %(seq)s", seq=two.lease.key[1])
    with outsider_holding(server, database, ("pgjq.queue", "dead"), ("pgjq.queue", "mail")):
        drive(ops.settle([Settlement(one.lease, Failed(JobError("E", "", None)))]))
        assert [job.action for job in drive(ops.reap())] == ["failed"]
    assert len(client.find_jobs("dead")) == 2


def test_a_queue_that_a_producer_keeps_by_its_row_is_not_deleted_or_redefined(
    server: str, postgres: pgjq.PostgresStorage, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(definitions, "PATIENCE", 0.1)
    client = pgjq.Client(postgres)
    client.enqueue("mail", "first", 1)
    client.delete_job("mail", "first")
    with psycopg.connect(postgres.conninfo) as connection:
        with outsider_holding(server, database, ("pgjq.queue", "mail")):
            client.enqueue("mail", "one", 1, connection=connection)
        with pytest.raises(pgjq.StorageUnavailableError, match="stays open"):
            client.delete_queue("mail")
        with pytest.raises(pgjq.StorageUnavailableError, match="stays open"):
            client.create_queue("mail", policy="short")
    with pytest.raises(pgjq.PolicyError, match="another policy"):
        client.create_queue("mail", policy="short")
    assert client.get_status("mail", "one") is not None


def test_a_queue_that_is_being_deleted_for_long_is_an_error_that_says_so(own_database: str) -> None:
    execute(own_database, "alter function pgjq.lock_queue_row set lock_timeout = '100ms'")
    with pgjq.Client(pgjq.PostgresStorage(own_database)) as client, psycopg.connect(own_database) as admin:
        client.enqueue("mail", "first", 1)
        admin.execute("select pgjq.delete_queue('mail')")
        with pytest.raises(pgjq.StorageUnavailableError, match="queue mail has been locked for 10 s"):
            client.enqueue("mail", "one", 1)
        admin.commit()
        assert client.enqueue("mail", "one", 1).status == "queued"


def test_an_id_of_a_write_that_stays_open_is_an_error_that_says_so(own_database: str) -> None:
    execute(own_database, "alter function pgjq.remove_orphan_body set lock_timeout = '100ms'")
    with pgjq.Client(pgjq.PostgresStorage(own_database)) as client, psycopg.connect(own_database) as writer:
        client.enqueue("mail", "left", 1)
        execute(own_database, "delete from pgjq.job")
        writer.execute("select pg_advisory_xact_lock(hashtext('pgjq.write'), id) from pgjq.queue")
        with pytest.raises(pgjq.StorageUnavailableError, match="a write of many jobs that has been open"):
            client.enqueue("mail", "left", 1)
        writer.commit()
        assert client.enqueue("mail", "left", 1).status == "queued"


def test_every_function_that_waits_for_a_lock_of_any_login_has_a_bound(database: str) -> None:
    waiting = """
        select proname::text, proconfig::text ~ 'lock_timeout=[1-9]' from pg_proc
        where pronamespace = 'pgjq'::regnamespace
            and (prosrc ~ 'pg_advisory_(xact_)?lock' or proname = 'lock_queue_row')
    """
    found = dict(execute(database, waiting))
    assert {"wait_for_queue_lock", "lock_queue_row", "remove_orphan_body"} < found.keys()
    assert [name for name, is_bounded in found.items() if not is_bounded] == []


def test_a_bulk_write_while_another_login_holds_its_lock_is_an_error_that_says_so(own_database: str) -> None:
    execute(own_database, "alter function pgjq.lock_bulk_write set lock_timeout = '100ms'")
    with psycopg.connect(own_database) as writer, psycopg.connect(own_database) as outsider:
        outsider.execute("select pg_advisory_lock(hashtext('pgjq.write'), 8)")
        with pytest.raises(psycopg.errors.LockNotAvailable, match="the lock of bulk writes has been held for 10 s"):
            writer.execute("select pgjq.enqueue_staged('mail', 8, now(), null, '{}', 0, true)")


def test_the_command_line_says_what_connect_means(empty_database: str, server: str) -> None:
    there = {name for (name,) in execute(server, "select rolname from pg_roles")}
    said = run("migrate", "--roles", "--url", empty_database, url=None)
    assert said.exit_code == 0, said.output
    name = str(conninfo_to_dict(empty_database)["dbname"])
    assert f"revoke connect on database {name} from public" in said.stderr
    execute(empty_database, "revoke connect on database {} from public", name)
    assert "revoke connect" not in run("migrate", "--roles", "--url", empty_database, url=None).stderr
    downgrade(empty_database)
    for role in ROLES:
        if f"pgjq_{role}" not in there:
            execute(server, "drop role if exists {}", f"pgjq_{role}")
