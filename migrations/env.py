"""Where alembic meets pgjq's revisions: from the command line of a checkout, or called by `pgjq.migrate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from alembic import context
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from pgjq.migrate import check_encoding, check_ours, current_schema, grant_roles, has_roles, sqlalchemy_url
from pgjq.online_migration import SEARCH_PATH, is_next_version, limit_lock_waits, only_one_migrates, retry_locks

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def migrate_with(connection: Connection) -> None:
    """Run the revisions, each as a transaction, one process at a time (`pgjq.online_migration`).

    The lock is taken before alembic reads the version: a process that waited for it finds the work done. The search
    path holds while views and functions are created, so no object of another schema gets into them.
    """
    schema = current_schema()
    limit_lock_waits(connection)
    # A target such as -2 counts from where the database is: after a rollback that is somewhere else.
    is_absolute = not str(context.get_revision_argument()).startswith(("+", "-"))
    with only_one_migrates(connection, schema):
        retry_locks(lambda: _revise(connection, schema), connection.rollback, repeatable=is_absolute)


def _revise(connection: Connection, schema: str) -> None:
    is_granted = False

    def grant(**_: object) -> None:
        """Grant in the transaction of the newest revision: without the right to, nothing is done."""
        nonlocal is_granted
        if not is_granted and _is_newest() and (_wants_roles() or has_roles(connection, schema)):
            _grant_roles()
            is_granted = True

    context.configure(
        connection=connection, version_table_schema=schema, transaction_per_migration=True, on_version_apply=grant
    )
    check_ours(connection, schema)
    check_encoding(connection)
    if not inspect(connection).has_schema(schema):
        connection.execute(CreateSchema(schema))
    if not _is_ahead(connection, schema):
        context.run_migrations()
        grant()  # If there was no revision to run.
    connection.commit()


def _is_ahead(connection: Connection, schema: str) -> bool:
    """Tell whether newer code has migrated the schema, to a version that this code works on."""
    known = {revision.revision for revision in context.script.walk_revisions()}
    is_unknown = not known.issuperset(context.get_context().get_current_heads())
    wants_newest = context.get_revision_argument() == context.get_head_revision()
    return is_unknown and wants_newest and is_next_version(connection, schema)


def print_statements() -> None:
    """Print the SQL instead of running it."""
    _take_schema_argument()
    schema = current_schema()
    # With named parameters a percent sign in the schema's name is not doubled.
    named = {"paramstyle": "named"}
    context.configure(dialect_name="postgresql", version_table_schema=schema, literal_binds=True, dialect_opts=named)
    with context.begin_transaction():
        quoted = '"{}"'.format(schema.replace('"', '""'))
        context.get_context().impl.static_output(f"CREATE SCHEMA IF NOT EXISTS {quoted};")
        context.get_context().impl.static_output(f"{SEARCH_PATH};")
        context.run_migrations()
        if _wants_roles():
            _grant_roles()


def _wants_roles() -> bool:
    """Tell whether the roles were asked for: by the caller, or by `-x roles=yes`."""
    asked = context.get_x_argument(as_dictionary=True).get("roles", "no")
    return bool(context.config.attributes.get("roles")) or asked == "yes"


def _is_newest() -> bool:
    return context.get_head_revision() in context.get_context().get_current_heads()


def _grant_roles() -> None:
    with Operations.context(context.get_context()):
        grant_roles()


def _take_schema_argument() -> None:
    arguments = context.get_x_argument(as_dictionary=True)
    if "schema" in arguments:
        context.config.set_main_option("pgjq_schema", arguments["schema"].replace("%", "%%"))


def connect_and_migrate() -> None:
    """Connect to what `-x url=…` or PGJQ_URL names; `-x schema=…` names another schema."""
    _take_schema_argument()
    url = context.get_x_argument(as_dictionary=True).get("url") or os.environ.get("PGJQ_URL")
    if not url:
        raise SystemExit(
            "name the database: PGJQ_URL=postgresql://… alembic upgrade head, or alembic -x url=postgresql://…"
        )
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool)
    with engine.connect() as connection:
        migrate_with(connection)


if context.is_offline_mode():
    print_statements()
elif (given := context.config.attributes.get("connection")) is not None:
    migrate_with(given)
else:
    connect_and_migrate()
