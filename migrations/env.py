"""Where alembic meets pgjq's revisions: from the command line of a checkout, or called by `pgjq.migrate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from alembic import context
from alembic.operations import Operations
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from pgjq.migrate import check_encoding, check_ours, current_schema, grant_roles, has_roles, sqlalchemy_url

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection

SEARCH_PATH = "SET LOCAL search_path = pg_catalog, pg_temp"


def migrate_with(connection: Connection) -> None:
    """Run the revisions in one transaction, one process at a time.

    The lock is taken before alembic reads the version, so whoever waited for it finds the work done. What views and
    functions mean is settled while they are made: nothing that others have put into the database is found then.
    """
    schema = current_schema()
    context.configure(connection=connection, version_table_schema=schema)
    with context.begin_transaction():
        connection.execute(text("select pg_advisory_xact_lock(hashtext(:key))"), {"key": f"pgjq.migrate.{schema}"})
        connection.execute(text(SEARCH_PATH))
        check_ours(connection, schema)
        check_encoding(connection)
        if not inspect(connection).has_schema(schema):
            connection.execute(CreateSchema(schema))
        context.run_migrations()
        if _wants_roles() or (_is_newest() and has_roles(connection, schema)):
            _grant_roles()
    connection.commit()


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
