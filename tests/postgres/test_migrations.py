"""Migrations: from a checkout, from code, offline, in an application's alembic project, and by several processes."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo
from sqlalchemy import create_engine

import pgjq
from pgjq.blocking import drive
from pgjq.migrate import downgrade, sqlalchemy_url, statements, status, versions_path
from pgjq.outcome import Completed
from pgjq.storage.base import Settlement
from tests.databases import new_database

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
NAMES = [
    "MixedCase",
    "with space",
    'double"quote',
    "single'quote",
    "100%s %(schema)s %%",
    "ünïcødé 作業",
    "select",
    "dot.ted",
    "a :colon ::text",
    "back\\slash",
    "two $$ dollars",
    "my pgjq.jobs",
    "n" * 48,
]
EVERYTHING_ODD = """Odd "q" 'q' 100%s :b ::text $$ pgjq. é\\"""

# Every process is forked before the first one connects, and all of them go when the pipe closes.
TWENTY_PROCESSES = """
import os, sys
import alembic.command, sqlalchemy, psycopg, pgjq
hear, speak = os.pipe()
children = []
for _ in range(20):
    if (child := os.fork()) == 0:
        os.close(speak)
        os.read(hear, 1)
        pgjq.migrate(sys.argv[1])
        os._exit(0)
    children.append(child)
os.close(speak)
sys.exit(sum(os.waitpid(child, 0)[1] != 0 for child in children))
"""

every_mode = pytest.mark.parametrize("mode", ["sync", "async"])


def alembic(*arguments: str, cwd: Path = ROOT, **environment: str) -> str:
    """Run the command as people do, in a checkout unless told otherwise."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PGJQ_")}
    command = (sys.executable, "-m", "alembic", *arguments)
    done = subprocess.run(
        command, cwd=cwd, env={**kept, **environment}, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def works(conninfo: str, schema: str = "pgjq") -> bool:
    """Put a job through the schema."""
    with closing(pgjq.PostgresStorage(conninfo, schema=schema)) as storage:
        pgjq.Client(storage).enqueue("mail", "one", {"to": "ann"})
        (claimed,) = drive(storage.operations("sync").claim(["mail"], worker="w", limit=9, policy=pgjq.LeasePolicy()))
        drive(storage.operations("sync").settle([Settlement(claimed.lease, Completed(b"7"))]))
        return pgjq.Client(storage).get_result("mail", "one") == 7


def describe(conninfo: str, schema: str = "pgjq") -> list[tuple[Any, ...]]:
    """List everything in a schema as the catalogue knows it."""
    query = """
        select 'column', c.relname, a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull::text
        from pg_attribute as a inner join pg_class as c on a.attrelid = c.oid
        where c.relnamespace = %(schema)s::regnamespace and a.attnum > 0
        union all
        select 'index', c.relname, pg_get_indexdef(c.oid), '', '' from pg_class as c
        where c.relnamespace = %(schema)s::regnamespace and c.relkind in ('i', 'I')
        union all
        select 'function', p.proname, pg_get_functiondef(p.oid), '', '' from pg_proc as p
        where p.pronamespace = %(schema)s::regnamespace
        union all
        select 'relation', c.relname, c.relkind::text, c.reloptions::text, '' from pg_class as c
        where c.relnamespace = %(schema)s::regnamespace
        order by 1, 2, 3
    """
    with psycopg.connect(conninfo) as connection:
        quoted = sql.Identifier(schema).as_string(connection)
        return connection.execute(query, {"schema": quoted}).fetchall()


def execute(conninfo: str, statement: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def schema_dropped_afterwards(migrated: str) -> Iterator[list[str]]:
    """Names of schemas in the common database that go when the test is done."""
    names: list[str] = []
    yield names
    with psycopg.connect(migrated, autocommit=True) as connection:
        for name in names:
            connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(name)))


@contextmanager
def replaced_version(conninfo: str, change: int) -> Iterator[None]:
    """Pretend that the schema is older or newer than this code."""
    with psycopg.connect(conninfo, autocommit=True) as connection:
        row = connection.execute("select pgjq.schema_version()").fetchone()
        assert row is not None
        define = (
            "create or replace function pgjq.schema_version() returns integer language sql immutable parallel safe "
        )
        connection.execute(sql.SQL(define + "return {}").format(row[0] + change))
        yield
        connection.execute(sql.SQL(define + "return {}").format(row[0]))


def enqueue(mode: str, storage: pgjq.PostgresStorage) -> None:
    if mode == "sync":
        pgjq.Client(storage).enqueue("mail", "one", 1)
    else:
        asyncio.run(pgjq.AsyncClient(storage).enqueue("mail", "one", 1))


def test_an_empty_database_is_migrated_to_the_newest_revision(empty_database: str) -> None:
    assert status(empty_database).current is None
    pgjq.migrate(empty_database)
    found = status(empty_database)
    assert found.current == found.head
    assert works(empty_database)


@pytest.mark.parametrize("encoding", ["LATIN1", "SQL_ASCII", "EUC_JP"])
def test_a_database_in_another_encoding_is_refused(server: str, encoding: str) -> None:
    with new_database(server, encoding=encoding) as conninfo:
        with pytest.raises(pgjq.SchemaError, match=f"encoding of this database is {encoding}, and pgjq needs UTF8"):
            pgjq.migrate(conninfo)
        with psycopg.connect(conninfo) as connection:
            assert connection.execute("select from pg_namespace where nspname = 'pgjq'").fetchall() == []


def test_a_database_is_migrated_whatever_the_clients_encoding(empty_database: str) -> None:
    conninfo = f"{empty_database} client_encoding=latin1"
    pgjq.migrate(conninfo)
    with closing(pgjq.PostgresStorage(conninfo)) as storage, pgjq.Client(storage) as client:
        client.enqueue("☃", "ünique ☃", {"☃": 1})
        status = client.get_status("☃", "ünique ☃")
    assert status is not None
    assert (status.id, status.state) == ("ünique ☃", "queued")


def test_migrating_again_changes_nothing_and_keeps_the_jobs(postgres: pgjq.PostgresStorage) -> None:
    pgjq.Client(postgres).enqueue("mail", "one", 1)
    before = describe(postgres.conninfo)
    pgjq.migrate(postgres.conninfo)
    assert describe(postgres.conninfo) == before
    assert pgjq.Client(postgres).get_status("mail", "one") is not None


def test_a_downgrade_removes_everything_and_an_upgrade_brings_it_back(empty_database: str) -> None:
    pgjq.migrate(empty_database)
    before = describe(empty_database)
    downgrade(empty_database)
    assert {row[1] for row in describe(empty_database)} <= {"alembic_version", "alembic_version_pkc"}
    assert status(empty_database).current is None
    pgjq.migrate(empty_database)
    assert describe(empty_database) == before
    assert works(empty_database)


def test_twenty_processes_migrate_an_empty_database_at_once(empty_database: str) -> None:
    command = (sys.executable, "-c", TWENTY_PROCESSES, empty_database)
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert works(empty_database)


def test_alembic_in_a_checkout_takes_the_database_from_the_environment(empty_database: str) -> None:
    alembic("upgrade", "head", PGJQ_URL=empty_database)
    assert works(empty_database)
    alembic("downgrade", "base", PGJQ_URL=empty_database)
    assert status(empty_database).current is None
    alembic("upgrade", "head", PGJQ_URL=empty_database)
    assert works(empty_database)


def test_alembic_in_a_checkout_takes_database_and_schema_from_its_arguments(empty_database: str) -> None:
    alembic(
        "-x", f"url={empty_database}", "-x", "schema=My 100% jobs", "upgrade", "head", PGJQ_URL="postgresql://wrong"
    )
    assert works(empty_database, "My 100% jobs")
    assert status(empty_database).current is None


def test_alembic_in_a_checkout_without_a_database_says_how_to_name_one() -> None:
    with pytest.raises(AssertionError, match=r"PGJQ_URL=.*alembic -x url="):
        alembic("upgrade", "head")


def test_alembic_in_a_checkout_prints_sql_without_a_database(empty_database: str) -> None:
    execute(empty_database, alembic("upgrade", "head", "--sql"))
    assert works(empty_database)


@pytest.mark.parametrize("schema", ["pgjq", EVERYTHING_ODD])
def test_the_sql_for_a_reviewer_makes_the_same_schema(
    schema: str, empty_database: str, migrated: str, schema_dropped_afterwards: list[str]
) -> None:
    execute(empty_database, statements(schema))
    if schema != "pgjq":
        schema_dropped_afterwards.append(schema)
        pgjq.migrate(migrated, schema)
    assert describe(empty_database, schema) == describe(migrated, schema)
    found = status(empty_database, schema)
    assert found.current == found.head
    assert works(empty_database, schema)


@pytest.mark.parametrize("schema", NAMES)
def test_any_schema_name_works_from_the_migration_to_the_events(
    schema: str, migrated: str, schema_dropped_afterwards: list[str]
) -> None:
    schema_dropped_afterwards.append(schema)
    pgjq.migrate(migrated, schema)
    with closing(pgjq.PostgresStorage(migrated, schema=schema)) as storage:
        client, operations = pgjq.Client(storage), storage.operations("sync")
        subscription = drive(operations.subscribe())
        client.enqueue("mail", "one", {"to": "ann"})
        client.enqueue_many("bulk", [(None, n) for n in range(150)])
        (claimed,) = drive(operations.claim(["mail"], worker="w", limit=9, policy=pgjq.LeasePolicy()))
        drive(operations.settle([Settlement(claimed.lease, Completed(b"7"))]))
        assert client.get_result("mail", "one") == 7
        heard: list[pgjq.Event] = []
        while "completed" not in [event.name for event in heard]:
            heard += drive(subscription.next(30))
        assert {event.name for event in heard} == {"queued", "processing", "completed"}
        drive(subscription.close())
    downgrade(migrated, schema)
    assert status(migrated, schema).current is None


def test_any_schema_name_works_in_a_sqlalchemy_transaction(migrated: str, schema_dropped_afterwards: list[str]) -> None:
    schema_dropped_afterwards.append(EVERYTHING_ODD)
    pgjq.migrate(migrated, EVERYTHING_ODD)
    engine = create_engine(sqlalchemy_url(migrated))
    with closing(pgjq.PostgresStorage(migrated, schema=EVERYTHING_ODD)) as storage:
        client = pgjq.Client(storage)
        with engine.begin() as connection:
            client.enqueue("mail", "one", 1, connection=connection)
        assert client.get_status("mail", "one") is not None
    engine.dispose()


@pytest.mark.parametrize("schema", ["", "n" * 49, "ü" * 25, "nul\0", "line\nbreak", "\ud800", None, 5])
def test_a_schema_name_that_postgresql_cannot_hold_is_refused(schema: Any) -> None:
    with pytest.raises(pgjq.ValidationError, match="schema must be a name of 1 to 48 bytes"):
        pgjq.PostgresStorage("postgresql://", schema=schema)
    with pytest.raises(pgjq.ValidationError, match="schema must be a name of 1 to 48 bytes"):
        pgjq.migrate("postgresql://", schema)


def test_two_schemas_in_one_database_do_not_see_each_other(migrated: str, schema_dropped_afterwards: list[str]) -> None:
    names = [f"Twin {uuid4().hex}", f"twin {uuid4().hex}"]
    schema_dropped_afterwards += names
    for name in names:
        pgjq.migrate(migrated, name)
    here, there = (pgjq.PostgresStorage(migrated, schema=name) for name in names)
    with closing(here), closing(there):
        heard_here = drive(here.operations("sync").subscribe())
        heard_there = drive(there.operations("sync").subscribe())
        assert pgjq.Client(here).enqueue("mail", "one", "here").status == "queued"
        assert pgjq.Client(there).get_status("mail", "one") is None
        assert pgjq.Client(there).enqueue("mail", "one", "there").status == "queued"
        (claimed,) = drive(there.operations("sync").claim(["mail"], worker="w", limit=9, policy=pgjq.LeasePolicy()))
        assert claimed.payload == b'"there"'
        pgjq.Client(here).enqueue("mail", "last", 1)
        pgjq.Client(there).enqueue("mail", "end", 1)
        assert names_heard(heard_here, "last") == [("queued", "one"), ("queued", "last")]
        assert names_heard(heard_there, "end") == [("queued", "one"), ("processing", "one"), ("queued", "end")]


def names_heard(subscription: Any, last: str) -> list[tuple[str, str]]:
    heard: list[tuple[str, str]] = []
    while last not in [id for _, id in heard]:  # noqa: A001  (the contract's word)
        heard += [(event.name, event.id) for event in drive(subscription.next(30))]
    return heard


def test_a_worker_is_not_woken_by_another_schemas_jobs(migrated: str, schema_dropped_afterwards: list[str]) -> None:
    names = [f"a{uuid4().hex}", f"b{uuid4().hex}"]
    schema_dropped_afterwards += names
    for name in names:
        pgjq.migrate(migrated, name)
    here, there = (pgjq.PostgresStorage(migrated, schema=name) for name in names)
    listens = "select from pg_locks where locktype = 'advisory' and mode = 'ShareLock'"
    connection = psycopg.connect(migrated, autocommit=True)
    with closing(here), closing(there), closing(connection), ThreadPoolExecutor(1) as threads:
        woken = threads.submit(lambda: drive(there.operations("sync").wait_for_work(["mail"], 0.5)))
        while connection.execute(listens).rowcount == 0:
            assert not woken.done()
        pgjq.Client(here).enqueue("mail", "one", 1)
        assert woken.result() is False


@every_mode
def test_a_missing_schema_is_an_error_that_says_what_to_run(mode: str, empty_database: str) -> None:
    with (
        closing(pgjq.PostgresStorage(empty_database)) as storage,
        pytest.raises(pgjq.SchemaError, match=r"pgjq migrate.*pgjq\.migrate\("),
    ):
        enqueue(mode, storage)


@every_mode
def test_a_schema_that_is_too_old_is_an_error_that_says_what_to_run(mode: str, database: str) -> None:
    with (
        replaced_version(database, -1),
        closing(pgjq.PostgresStorage(database)) as storage,
        pytest.raises(pgjq.SchemaError, match=r"has version 0, this code needs 1: run .*pgjq migrate"),
    ):
        enqueue(mode, storage)


@every_mode
def test_a_schema_that_is_too_new_is_an_error_that_says_what_to_upgrade(mode: str, database: str) -> None:
    with (
        replaced_version(database, +2),
        closing(pgjq.PostgresStorage(database)) as storage,
        pytest.raises(pgjq.SchemaError, match=r"has version 3, this code knows 1 and works on 2: upgrade pgjq"),
    ):
        enqueue(mode, storage)


@every_mode
def test_the_next_schema_is_one_that_this_code_works_on(mode: str, database: str) -> None:
    with replaced_version(database, +1), closing(pgjq.PostgresStorage(database)) as storage:
        enqueue(mode, storage)
        assert pgjq.Client(storage).get_status("mail", "one") is not None


def test_every_operation_looks_at_the_schema_first(database: str) -> None:
    with replaced_version(database, +2), closing(pgjq.PostgresStorage(database)) as storage:
        client, operations = pgjq.Client(storage), storage.operations("sync")
        for operation in (
            lambda: client.get_status("mail", "one"),
            lambda: client.cancel("mail", "one"),
            client.find_jobs,
            lambda: client.get_queue_stats("mail"),
            lambda: drive(operations.claim(["mail"], worker="w", limit=1, policy=pgjq.LeasePolicy())),
            lambda: drive(operations.reap()),
            lambda: drive(operations.subscribe()),
            lambda: drive(operations.elect("reaper", "me", ttl=30)),
        ):
            with pytest.raises(pgjq.SchemaError, match="upgrade pgjq"):
                operation()


@pytest.mark.parametrize("change", [-1, 0, +2], ids=["older", "missing", "newer"])
def test_the_callers_transaction_outlives_a_schema_that_does_not_fit(change: int, empty_database: str) -> None:
    if change:
        pgjq.migrate(empty_database)
        execute(
            empty_database,
            "create or replace function pgjq.schema_version() returns integer language sql immutable parallel safe "
            f"as 'select {1 + change}'",
        )
    with closing(pgjq.PostgresStorage(empty_database)) as storage, psycopg.connect(empty_database) as connection:
        connection.execute("create table mine (n integer)")
        with pytest.raises(pgjq.SchemaError):
            pgjq.Client(storage).enqueue("mail", "one", 1, connection=connection)
        connection.execute("insert into mine values (1)")
        connection.commit()
        assert connection.execute("select from mine").rowcount == 1


def test_a_revision_of_the_future_is_an_error_that_says_what_to_upgrade(own_database: str) -> None:
    execute(own_database, "update pgjq.alembic_version set version_num = 'pgjq_9999'")
    pgjq.migrate(own_database)  # The version says that this code works on it.
    execute(own_database, "create or replace function pgjq.schema_version() returns integer language sql return 3")
    with pytest.raises(pgjq.SchemaError, match=r"pgjq_9999.*upgrade"):
        pgjq.migrate(own_database)


def test_migrating_without_the_right_to_is_a_storage_error(empty_database: str) -> None:
    role = f"pgjq_{uuid4().hex}"
    execute(empty_database, f"create role {role}")
    try:
        with pytest.raises(pgjq.StorageError, match="permission denied"):
            pgjq.migrate(make_conninfo(empty_database, options=f"-c role={role}"))
    finally:
        execute(empty_database, f"drop role {role}")


def test_migrating_a_server_that_is_not_there_is_storage_unavailable() -> None:
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))
        port = unheard.getsockname()[1]
        with pytest.raises(pgjq.StorageUnavailableError, match="refused"):
            pgjq.migrate(f"postgresql://nobody@127.0.0.1:{port}/none")


def test_losing_the_server_in_the_middle_of_a_migration_is_storage_unavailable(empty_database: str) -> None:
    conninfo = make_conninfo(empty_database, application_name="migrating")
    with psycopg.connect(empty_database) as rival, ThreadPoolExecutor(1) as threads:
        rival.execute("create schema pgjq")
        migrating = threads.submit(pgjq.migrate, conninfo)
        terminate = """
            select pg_terminate_backend(pid) from pg_stat_activity
            where application_name = 'migrating' and wait_event_type = 'Lock'
        """
        with psycopg.connect(empty_database, autocommit=True) as admin:
            while admin.execute(terminate).rowcount == 0:
                assert not migrating.done()
        with pytest.raises(pgjq.StorageUnavailableError, match="terminat"):
            migrating.result()
        rival.rollback()
    pgjq.migrate(empty_database)
    assert works(empty_database)


def test_an_alembic_project_of_ones_own_adopts_the_revisions(tmp_path: Path, empty_database: str) -> None:
    project(tmp_path)
    alembic("upgrade", "heads", cwd=tmp_path, DATABASE=empty_database)
    with closing(pgjq.PostgresStorage(empty_database)) as storage:
        client = pgjq.Client(storage)
        status_of_first = client.get_status("mail", "from the user's own revision")
        assert status_of_first is not None
        client.enqueue("mail", "two", 1)
        assert client.get_queue_stats("mail").queued == 2
    alembic("downgrade", "base", cwd=tmp_path, DATABASE=empty_database)
    assert describe(empty_database) == []


def test_an_alembic_project_of_ones_own_names_the_schema_in_its_configuration(
    tmp_path: Path, empty_database: str
) -> None:
    project(tmp_path, "pgjq_schema = Our Jobs")
    alembic("upgrade", "pgjq@head", cwd=tmp_path, DATABASE=empty_database)
    assert works(empty_database, "Our Jobs")


def project(folder: Path, *settings: str) -> None:
    """Write an alembic project as `alembic init` does, with a revision of its own and pgjq's taken in."""
    (folder / "alembic.ini").write_text(
        "\n".join(
            (
                "[alembic]",
                "script_location = %(here)s/scripts",
                "path_separator = os",
                f"version_locations = %(here)s/scripts/versions{os.pathsep}{versions_path()}",
                *settings,
            )
        )
    )
    (folder / "scripts" / "versions").mkdir(parents=True)
    (folder / "scripts" / "script.py.mako").touch()
    (folder / "scripts" / "env.py").write_text(
        """
import os
from alembic import context
from sqlalchemy import create_engine
from pgjq.migrate import sqlalchemy_url

with create_engine(sqlalchemy_url(os.environ["DATABASE"])).connect() as connection:
    context.configure(connection=connection)
    with context.begin_transaction():
        context.run_migrations()
"""
    )
    (folder / "scripts" / "versions" / "app_0001.py").write_text(
        """
from alembic import op

revision = "app_0001"
down_revision = None
depends_on = "pgjq_0001"

def upgrade():
    op.execute("select pgjq.enqueue('mail', '{}', id => 'from the user''s own revision')")

def downgrade():
    pass
"""
    )
