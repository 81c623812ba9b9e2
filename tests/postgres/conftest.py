"""A database whose schema has roles, and a login of each role."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import pgjq
from tests.databases import new_database

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

ROLES = ("producer", "worker", "monitor", "spark", "admin")
TABLES = (
    "pgjq.queue",
    "pgjq.worker",
    "pgjq.body",
    "pgjq.job",
    "pgjq.done",
    "pgjq.progress",
    "pgjq.attempt",
    "pgjq.time_slot",
)


@dataclass(frozen=True)
class ByRole:
    """The database for the server's superuser and for the schema's owner, and a storage for each role and the owner."""

    superuser: str
    owner: str
    storages: dict[str, pgjq.PostgresStorage]

    @property
    def client(self) -> pgjq.Client:
        """The owner's."""
        return pgjq.Client(self.storages["owner"])


def execute(conninfo: str, statement: str, *names: str, **params: Any) -> list[tuple[Any, ...]]:
    """Run a statement; `{}` in it are names, in their order, if there are any."""
    text = (
        sql.SQL(statement).format(*(sql.Identifier(*name.split(".")) for name in names))
        if names
        else statement.encode()
    )
    with psycopg.connect(conninfo, autocommit=True) as connection:
        cursor = connection.execute(text, params or None)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def new_login(server: str, rights: str = "") -> Generator[dict[str, str]]:
    """Make a login, and drop it in the end."""
    who = {"user": f"login {uuid4().hex}", "password": uuid4().hex}
    words = sql.SQL("create role {} login password {} " + rights)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(words.format(sql.Identifier(who["user"]), who["password"]))
    yield who
    drop_roles(server, who["user"])


def drop_roles(server: str, *names: str) -> None:
    for name in names:
        execute(server, "drop role if exists {}", name)


@contextmanager
def owned_database(server: str, rights: str = "createrole") -> Generator[tuple[str, str]]:
    """A database, for its superuser and for an ordinary login that may make a schema in it."""
    with new_login(server, rights) as owner, new_database(server) as superuser:
        execute(
            superuser, "grant create on database {} to {}", str(conninfo_to_dict(superuser)["dbname"]), owner["user"]
        )
        yield superuser, make_conninfo(superuser, **owner)


@pytest.fixture(scope="session")
def role_logins(server: str) -> Iterator[dict[str, str]]:
    """A database with roles: connection strings for the server's superuser, the schema's owner, and each role."""
    there = {name for (name,) in execute(server, "select rolname from pg_roles")}
    with ExitStack() as stack:
        stack.callback(lambda: drop_roles(server, *({f"pgjq_{role}" for role in ROLES} - there)))
        logins = {role: stack.enter_context(new_login(server)) for role in ROLES}
        superuser, owner = stack.enter_context(owned_database(server))
        pgjq.migrate(owner, roles=True)
        for role, who in logins.items():
            execute(superuser, "grant {} to {}", f"pgjq_{role}", who["user"])
        conninfos = {role: make_conninfo(superuser, **who) for role, who in logins.items()}
        yield {"superuser": superuser, "owner": owner} | conninfos


@pytest.fixture
def by_role(role_logins: dict[str, str]) -> Iterator[ByRole]:
    """That database, with storages of the test's own."""
    with ExitStack() as stack:
        storages = {role: pgjq.PostgresStorage(role_logins[role]) for role in (*ROLES, "owner")}
        for storage in storages.values():
            stack.callback(storage.close)
        yield ByRole(role_logins["superuser"], role_logins["owner"], storages)
