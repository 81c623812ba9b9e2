"""Roles and migrations: who may make them, what an upgrade and a downgrade do to them, and what is printed."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from click.testing import CliRunner

import pgjq
from pgjq.cli import main
from pgjq.migrate import downgrade, statements, status
from tests.postgres.conftest import ROLES, drop_roles, execute, owned_database

if TYPE_CHECKING:
    from collections.abc import Generator

USERS = """
    select r.rolname from pg_namespace as n, aclexplode(n.nspacl) as a, pg_roles as r
    where n.nspname = %(schema)s and r.oid = a.grantee and r.oid <> n.nspowner order by 1
"""
RIGHTS = """
    select c.relname, c.relacl::text, array_agg(a.attacl::text order by a.attnum)::text
    from pg_class as c inner join pg_attribute as a on c.oid = a.attrelid
    where c.relnamespace = (select n.oid from pg_namespace as n where n.nspname = %(schema)s)
    group by c.oid
    union all
    select p.proname, p.proacl::text, p.prosecdef::text from pg_proc as p
    where p.pronamespace = (select n.oid from pg_namespace as n where n.nspname = %(schema)s)
    order by 1, 2, 3
"""


def rights(conninfo: str, schema: str) -> list[tuple[Any, ...]]:
    """List who may do what in a schema; roles without the schema's name in theirs."""
    return execute(conninfo, RIGHTS, schema=schema)


@contextmanager
def own_schema(server: str) -> Generator[str]:
    """An unused name of a schema, whose roles are unused as well."""
    name = f"our 'jobs' {uuid4().hex}"
    yield name
    drop_roles(server, *(f"{name}_{role}" for role in ROLES))


def test_without_createrole_nothing_is_done_and_the_error_says_what_to_do(server: str) -> None:
    with own_schema(server) as schema, owned_database(server, "nocreaterole") as (superuser, owner):
        with pytest.raises(
            pgjq.StorageError, match=r"^cannot migrate: role our 'jobs' .*lacks CREATEROLE.*roles\.md\)$"
        ):
            pgjq.migrate(owner, schema, roles=True)
        assert status(owner, schema).current is None
        for role in ROLES:
            execute(superuser, "create role {} nologin", f"{schema}_{role}")
        pgjq.migrate(owner, schema, roles=True)
        assert execute(owner, USERS, schema=schema) == [(f"{schema}_{role}",) for role in sorted(ROLES)]


def test_rights_are_the_same_from_nothing_afterwards_again_and_after_any_upgrade(server: str) -> None:
    with own_schema(server) as schema, owned_database(server) as (_, owner):
        pgjq.migrate(owner, schema)
        before = rights(owner, schema)
        pgjq.migrate(owner, schema, roles=True)
        given = rights(owner, schema)
        assert given != before
        execute(owner, "alter function {}.enqueue_job security invoker", schema)
        execute(owner, "grant execute on function {}.add_jobs to public", schema)
        execute(owner, "grant delete on {}.job to {}", schema, f"{schema}_producer")
        pgjq.migrate(owner, schema)
        assert rights(owner, schema) == given
        downgrade(owner, schema)
        assert execute(owner, USERS, schema=schema) == []
        execute(owner, "drop schema {} cascade", schema)
        printed = statements(schema, roles=True)
        execute(owner, printed)
        assert rights(owner, schema) == given


def test_roles_are_for_the_newest_revision() -> None:
    with pytest.raises(pgjq.ValidationError, match="newest revision"):
        pgjq.migrate("postgresql://nowhere.invalid", revision="pgjq_0001", roles=True)


def test_the_command_makes_roles_and_prints_them(server: str) -> None:
    with own_schema(server) as schema, owned_database(server) as (_, owner):
        done = CliRunner().invoke(main, ["migrate", "--roles", "--schema", schema, "--url", owner])
        assert (done.exit_code, done.stdout.splitlines()[1]) == (
            0,
            f"its roles are {schema}_producer, {schema}_worker, {schema}_monitor, {schema}_spark and {schema}_admin",
        )
        assert execute(owner, USERS, schema=schema) == [(f"{schema}_{role}",) for role in sorted(ROLES)]
        printed = CliRunner().invoke(main, ["migrate", "sql", "--roles", "--schema", schema]).stdout
        assert f'"{schema}_producer"' in printed
        assert "_producer" not in CliRunner().invoke(main, ["migrate", "sql", "--schema", schema]).stdout


@pytest.mark.parametrize("action", ["down", "status"])
def test_the_command_does_not_take_roles_where_they_mean_nothing(action: str) -> None:
    done = CliRunner().invoke(main, ["migrate", action, "--roles", "--url", "postgresql://nowhere.invalid"])
    assert (done.exit_code, "takes no --roles" in done.output) == (2, True)
