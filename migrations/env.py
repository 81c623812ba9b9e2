"""Where alembic meets pgjq's revisions: from the command line of a checkout, or called by `pgjq.migrate`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from alembic import context
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.pool import NullPool
from sqlalchemy.schema import CreateSchema

from pgjq.migrate import check_ours, current_schema, sqlalchemy_url

if TYPE_CHECKING:
    from sqlalchemy.engine import Connection


def migrate_with(connection: Connection) -> None:
    """Run the revisions in one transaction, one process at a time.

    The lock is taken before alembic reads the version, so whoever waited for it finds the work done.
    """
    schema = current_schema()
    context.configure(connection=connection, version_table_schema=schema)
    with context.begin_transaction():
        connection.execute(text("select pg_advisory_xact_lock(hashtext(:key))"), {"key": f"pgjq.migrate.{schema}"})
        check_ours(connection, schema)
        if not inspect(connection).has_schema(schema):
            connection.execute(CreateSchema(schema))
        context.run_migrations()
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
        context.run_migrations()


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
